// Command soak runs one node, a real process on a real directory, and does to it for
// minutes or hours what users and bad luck do: load, edit, delete, split, kill -9, pause
// and resume observers, let notifications be parked and replay them, hold snapshots open
// across collection, read the past. After every cycle it waits until nothing is left to
// run, computes everything that the observers have computed anew from the base table in
// one snapshot, and compares; and it looks whether anything has been left behind or
// grows.
//
//	make soak DURATION=10m SEED=1
//
// What must hold after each cycle, and ends the run with exit code 1 if it does not:
//  1. Counts, links and degrees are what the documents say, exactly (§2.4); each document
//     is what was last acknowledged, or one of those whose outcome nobody knew; two
//     tables written together agree.
//  2. No lock, intent or notification is left but those parked on purpose.
//  3. A snapshot that is held open reads the same as at first, and so does one of the
//     past inside the history. Below the bound the answer is ErrSnapshotTooOld.
//  4. After a warm-up the node's heap, goroutines and descriptors, the bytes and files on
//     its disk, and the old versions it keeps stay under bounds (limits.go says which).
//
// All choices come from the seed; the moments at which they happen do not. The step log
// is in the run's directory, which is kept after a failure.
//
// The program is three processes' worth of code in one binary: the driver, the node
// (child.go), and a client that is killed in the middle of its commits (client.go).
package main
