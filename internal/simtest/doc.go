// Package simtest simulates whole clusters in one process: real nodes over stores in
// memory, a simulated network between them, simulated gossip, and virtual time
// (testing/synctest). A seed makes the schedule of what happens to them: deaths and
// restarts, partitions of every kind, storms of loss, delay, doubling and reordering,
// pauses, false rumours of death, moves of leaders and replicas, splits, nodes that join
// and are drained, clients that die in the middle of their commits. Meanwhile the
// workloads of package test/workload run and check what they were promised, over clients
// whose messages suffer as well. In any weather, second copies of some batches and of some
// clients' operations arrive 20 ms to 2 s late.
//
// What a seed reproduces is the schedule, and all choices that are made in the simulation
// itself. The interleaving of goroutines is the Go scheduler's: nearly the same with
// GOMAXPROCS=1, else only alike. Hence a failing seed is run a few times more before it
// is believed to be mended.
//
// Invariants:
//  1. Everything that a simulation begins ends inside its bubble, or the test fails.
//  2. A node that has died sends and hears nothing more. Its next process opens what its
//     store has left: after a death all that was written; after a power loss, which half
//     of the crashes are, the log up to its last sync, and of the state what was durable
//     at the last checkpoint and any of what came later. What a disk makes of that is for
//     test/crash.
//  3. What is skipped is said: Report tells how many operations of which workload were
//     done, and how many tablets compared.
//
// Called by its own tests: make simtest SEEDS=200 SEED=1.
package simtest
