// Package worker implements what the public package worker and the gateway's service Work have in
// common: a worker, which runs observers and holds no data (docs/adr/0073). It is a dispatcher
// (actors/observer) with a session with each node.
//
// Invariants:
//  1. A session handles its node's messages in order: settings are in force before cells that the
//     node offers after them are accepted. No run starts while the worker has no session: the
//     queued cells are then dropped, and nodes hand them to other processes.
//  2. Settings of an older catalogue are never applied after those of a newer one.
//  3. Every cell that was accepted is reported as done to the node that has offered it, unless the
//     session has ended: the node then takes the cell back.
//  4. In each session at most Config.Queue cells are accepted and not done.
//
// Called by: worker and internal/gateway. A crash loses the queue; nodes notice the crash as soon
// as the connection breaks, or within 1 s, and hand the cells to others.
package worker
