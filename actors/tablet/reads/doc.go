// Package reads executes a tablet's reads outside of the tablet's turns: a node's read workers
// (Pool), what they share with a tablet (Shared), and the two queues in which a read waits, for
// its ReadIndex (Indexes) and then for a worker (Queue).
//
// The tablet checks its reads, requests the ReadIndex from its group and captures the view; a
// worker then answers the read from a Snap of the store. Indexes and Queue belong to the tablet's
// turns. A worker runs on its own goroutine and accesses only the tablet's Shared; it reports to
// the tablet by messages (Blocked, WorkersFree, StoreFailed).
//
// Reading order: indexes.go, queue.go, job.go, late.go, shared.go, pool.go.
//
// Invariants (design section 5, reads):
//
//  1. A job's view, term and epoch are captured in one turn, after the ReadIndex of its reads is
//     visible. The Snap is opened later, on the worker, and then the epoch is compared with that
//     in the Snap.
//  2. A read is answered only if the tablet's term after its evaluation is that of the capture,
//     and only from a safepoint at least as high as the Snap's.
//  3. A job owns its calls until it has answered them or sent them back.
//  4. Neither a turn nor a worker ever waits for the other: at most 64 jobs of a tablet are in
//     the pool, the rest wait in its Queue.
//
// A crash loses nothing: reads have no effects, and clients retry.
//
// Callers: actors/tablet; node creates the Pool.
package reads
