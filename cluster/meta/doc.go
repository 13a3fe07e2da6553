// Package meta is the schema of the meta tablet and the transactions on it: tables and the
// tablet map, the observer catalogue, the node table, orders of operators, the policy, and
// how far history is collected. Each record is a message in a raw cell; records change by
// conditional writes (records.go), so any number of nodes may do so at once.
//
// Invariants:
//
//  1. Table and tablet ids are never used twice: each comes from a counter in meta, raised by a conditional write.
//
//  2. A table has a tablet boundary at its start before its name can be looked up.
//
//  3. The tablet map follows the tablets: what a tablet says of itself wins by epoch. A crash between a split and its
//     record in meta is repaired by the tablet's next report.
//
//  4. A column counts as observed only after every tablet has applied the catalogue's version (design section 7). Which
//     version all of them have is noted in meta, after it is so; a newer one is told to those that lack it by the node that
//     wrote it, by each that starts, and by the one that leads meta (push.go). Nothing else waits for a tablet that is away.
//
//  5. What is said of an observer at run time (paused, limit, retired) is in the catalogue, so it outlives every process.
//     A retired observer's entry stays until its notifications are removed: neither its name nor its column can be taken
//     before, so a new observer never inherits them. Acknowledgments stay in their rows: each is older than any change
//     that a later observer of the name is told of, so it hides none.
//
//  6. The record of a back-fill changes on condition that its observer is in the catalogue, and goes with it.
//
//  7. The node table has one record a node. Of two processes with one node's identity only the later incarnation stands, and
//     of two with the same incarnation the first. A directory that was restored from a copy of before the last registration
//     never registers again: each start has a random number, and it does not know the last one's. What placement decides by, a node's state and since when it is gone, is
//     in it, in oracle time: gossip alone moves nothing.
//
//     The record of a node that is away and holds nothing is removed on request, or by placement after a time. Its id stays
//     noted, and its directory is refused from then on: what it has promised is of groups that have gone on without it. A
//     process of it that was only cut off finds itself missing when it looks who is there, and ends.
//
//  8. A conditional write whose answer was lost is read back: counters carry a number of their writer's, so that no two
//     take one value for their own.
//
//  9. The cluster's policy is one record, written once when the cluster is founded and changed on condition of what it was
//     (docs/adr/0026). Who makes tablets on request, or by size, makes no more than it allows, but for what other nodes make
//     at the same moment.
//
// A crash loses nothing: all of it is in the meta tablet. Called by: node, cluster/admin.
package meta
