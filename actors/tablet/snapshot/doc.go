// Package snapshot replaces the state of replicas: it sends, receives and installs
// snapshots, and creates and destroys replicas in a store.
//
// A snapshot is a tablet's state as of one entry of its log: the TabletState and all
// groups' entries of its range, read from one Snap of the store, whose Applied record
// identifies the entry. It is sent in pieces, outside of Raft. The Sender of a node reads
// and sends them, on its own goroutines; at the receiver, an Arrival checks and stages
// them, and an Installer replaces the replica's state by them.
//
// Invariants:
//  1. A snapshot contains every group, and everything in it is committed.
//  2. Pieces have no effect before all have arrived, with the checksums of the sender.
//  3. A range is filled or cleared only under a durable marker, which causes this to be repeated
//     after a crash before any replica is opened. So a replica never falls behind what it has
//     acknowledged to its leader, and its HardState keeps the vote and never goes back.
//  4. While a range is being filled or cleared, it is not captured.
//  5. A tombstone records which ids were removed, so that no late message creates such a
//     replica again. It never goes back.
//
// A crash during an installation leaves the marker, and Recover completes the installation;
// a crash before it leaves staged entries, which Recover drops. Raft requests again a
// snapshot whose sending was interrupted.
//
// Callers: package tablet, whose turns queue snapshots to send and read a replica's state
// when it is opened; package replicas, for everything else, while no actor has the replica;
// node, which owns the Sender.
package snapshot
