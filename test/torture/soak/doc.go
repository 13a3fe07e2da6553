// Package soak does to one node, a real process on a real directory, for minutes or hours
// what users and bad luck do: it loads, edits and deletes documents, splits tables, kills the
// node and clients in the middle of writes, pauses observers, has notifications parked and
// replays them, holds snapshots open across collection, and reads the past. After every cycle
// it waits until no notification is left to run, computes what the observers have computed
// anew from the documents in one snapshot, and compares.
//
// It is the fault "soak" of test/torture, which makes the cluster:
//
//	make soak DURATION=10m SEED=1
//
// What must hold after each cycle:
//  1. Counts, links and degrees are what the documents say, exactly (§2.4); each document is
//     what was last acknowledged, or one of those whose outcome is unknown; two tables that
//     one transaction writes agree; the bank, which killed clients write, holds its money.
//  2. No lock, intent or notification is left but those parked on purpose.
//  3. A snapshot that is held open reads the same as at first, and so does one of the past
//     inside the history. Below the bound the answer is ErrSnapshotTooOld.
//  4. After a warm-up the node's heap, goroutines and descriptors, the bytes and files on its
//     disk, and the old versions that it keeps stay under bounds (limits.go).
//
// A crash of the program ends the node with it; nothing is kept.
package soak
