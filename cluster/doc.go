// Package cluster is how a node knows the cluster: its own identity, the cluster's tables, tablet map and observer
// catalogue in the meta tablet, and where each tablet is reached. On one node there is one answer to the last question;
// gossip, remoting and placement join these files when there are several (design section 9).
//
// Invariants:
//  1. Table and tablet ids are never used twice: each comes from a counter in meta, raised by a conditional write.
//  2. A table has a tablet boundary at its start before its name can be looked up.
//  3. The tablet map follows the tablets: what a tablet says of itself wins by epoch. A crash between a split and its
//     record in meta is repaired by the tablet's next report.
//  4. A column counts as observed only after every tablet has applied the catalogue's version (design section 7).
//  5. What is said of an observer at run time (paused, limit, retired) is in the catalogue, so it outlives every process.
//     A retired observer's entry stays until its notifications are removed: neither its name nor its column can be taken
//     before, so a new observer never inherits them. Acknowledgments stay in their rows: each is older than any change
//     that a later observer of the name is told of, so it hides none.
//  6. The record of a back-fill changes on condition that its observer is in the catalogue, and goes with it.
//  7. The node table has one record a node. Of two processes with one node's identity only the later incarnation stands, and
//     of two with the same incarnation the first. What placement decides by, a node's state and since when it is gone, is
//     in it, in oracle time: gossip alone moves nothing.
//
// A crash loses nothing: all of it is in the meta tablet or the store. Called by: node.
package cluster
