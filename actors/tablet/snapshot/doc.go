// Package snapshot replaces the state of replicas: it sends, receives and installs
// snapshots, and makes and destroys what a store holds of a replica.
//
// A snapshot is a tablet's state as of one entry of its log: the TabletState and all
// groups' entries of its range, read from one Snap of the store, whose Applied record
// says which entry that is. It travels in pieces beside Raft. The Sender of a node reads
// and sends them, on goroutines of its own; where they arrive, an Arrival checks and
// stages them, and an Installer replaces the replica's state by them.
//
// Invariants:
//  1. A snapshot holds every group, and everything in it is committed.
//  2. What arrives changes nothing before it is there as a whole, with the checksums that
//     it was sent with.
//  3. A range is changed only under a durable marker, which has what a crash cut short
//     begun anew before any replica is opened. So a replica never goes back behind what
//     it has acknowledged to its leader, and HardState is not touched.
//  4. While a range is being filled or cleared, nobody captures it.
//  5. A tombstone remembers which ids were removed, so that no late message makes such a
//     replica again. It never goes back.
//
// A crash in the middle of an installation leaves the marker, which Recover brings to its
// end; one before it leaves staged entries, which Recover drops. A snapshot that was
// being sent is asked for again by Raft.
//
// Called by: package tablet, whose turns queue what is to be sent and read a replica's
// state when it is opened; package replicas, for all else, while no actor has the replica;
// node, which owns the Sender.
package snapshot
