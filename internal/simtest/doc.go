// Package simtest simulates whole clusters in one process: real nodes over stores in memory, a
// simulated network between them, simulated gossip, and virtual time (testing/synctest). A seed
// determines the schedule of events: crashes and restarts, partitions of every kind, storms of loss,
// delay, duplication and reordering, pauses, false reports of death, moves of leaders and replicas,
// splits, nodes that join and are drained, clients that die during commits. During that time the
// workloads of package test/workload run and check the database's guarantees, through clients over
// the same network. Even without faults, duplicates of some batches and of some clients' operations
// arrive 20 ms to 2 s late.
//
// A seed reproduces the schedule and all random choices of the simulation. The interleaving of
// goroutines is the Go scheduler's: nearly the same with GOMAXPROCS=1, otherwise only similar. So
// repeat a failing seed several times before considering a fault fixed.
//
// Invariants:
//  1. Every goroutine of a simulation ends inside its bubble, or the test fails.
//  2. A dead node neither sends nor receives. Its next process opens the remains of its store: after
//     a kill everything written; after a power loss, which half of the crashes are, the log up to its
//     last sync, the state as of the last checkpoint, and a random part of the later state. Package
//     test/crash tests real disks.
//  3. Nothing is skipped silently: Report contains the number of operations per workload and of
//     compared tablets.
//
// Large simulates a larger cluster at rest and counts what its nodes send each other.
//
// Called by its own tests: make simtest SEEDS=200 SEED=1. bench/evaluation runs that of Large.
package simtest
