// Package reads is the part of a tablet's reads that is not the tablet's own: the read workers
// of a node (Pool), what they share with a tablet (Shared), and the two queues that a read waits
// in, for its ReadIndex (Indexes) and then for a worker (Queue).
//
// The tablet checks its reads, asks its group for the ReadIndex and captures what a read is
// answered from; a worker then answers it from a Snap of the store. Indexes and Queue belong to
// the tablet's turns. A worker runs on a goroutine of its own, and knows of a tablet only its
// Shared; what it has to tell the tablet it sends as a message (Blocked, WorkersFree,
// StoreFailed).
//
// Reading order: indexes.go, queue.go, job.go, late.go, shared.go, pool.go.
//
// Invariants (design section 5, reads):
//
//  1. A job's view, term and epoch are captured in one turn, after the ReadIndex of its reads is
//     visible. The Snap is opened later, on the worker, and then the epoch is compared with that
//     in the Snap.
//  2. A read is answered only if the tablet's term is that of the capture after the read was
//     evaluated, and only from a safepoint that is at least the one of the Snap.
//  3. A job owns its calls until it has answered them or sent them back.
//  4. Neither a turn nor a worker ever waits for the other: at most 64 jobs of a tablet are in
//     the pool, the rest waits in its Queue.
//
// A crash loses nothing: reads have no effects, and a client asks again.
//
// Called by: actors/tablet; node makes the Pool.
package reads
