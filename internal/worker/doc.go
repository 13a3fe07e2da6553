// Package worker is what package worker and the gateway's service Work have in common: a process that
// runs observers and holds no data (docs/adr/0073), as a dispatcher (actors/observer) behind a session with
// each node.
//
// Invariants:
//  1. A session applies the settings that its node has sent before cells offered after them, and
//     no run starts while the worker has no session: what is queued is then dropped, and nodes hand
//     it to others.
//  2. Settings of an older catalogue are never applied after those of a newer one.
//  3. Every cell that was accepted is reported as done to the node that has offered it, unless the
//     session has ended: the node then releases it.
//  4. In each session at most Config.Queue cells are accepted and not done.
//
// Called by: worker and internal/gateway. A crash loses the queue; nodes notice it as soon as the connection
// breaks, or within 1 s, and hand the cells to others.
package worker
