// Package meta keeps the cluster's own records in the meta tablet: tables, the tablet
// map, the node table, orders of operators, the observer catalogue, the policy, how far
// history is collected, and the progress of back-fills.
//
// Each topic is a type, and Meta has one of each. All are over records (records.go), the
// one way in which a record is read and changed. A record is a message in a raw cell and
// changes by a conditional write, so any number of nodes may change it at once.
//
// Invariants:
//
//  1. Table and tablet ids are never used twice: each comes from a counter in meta that
//     a conditional write raises.
//
//  2. A table has a tablet boundary at its start before its name can be looked up. Its split
//     keys are pending in its record until a tablet begins at each (ADR 0054).
//
//  3. The tablet map follows the tablets: of two descriptors of a tablet, or that hold a
//     row, the one with the higher epoch stands. A crash between a split or a merge and its
//     record in meta is repaired by the tablet's next report. What a merge has come to is
//     in the two tablets, never in a record.
//
//  4. A column counts as observed only after every tablet has applied the catalogue's
//     version (design section 7). Meta notes a version only after every tablet has it. A
//     newer version is told to the tablets by the node that wrote it, by each node that
//     starts, and by the node that leads meta (publish.go). Nothing else waits for a
//     tablet that is away.
//
//  5. What operators set of an observer (paused, limit, retired) is in the catalogue, so
//     it outlives every process. The entry of a retired observer stays until its
//     notifications are removed. Until then its name and its column cannot be taken, so
//     that no new observer inherits the notifications. Acknowledgments stay in their
//     rows: each is older than any change that a later observer of the name is told of,
//     so it hides none.
//
//  6. The record of a back-fill changes on condition that its observer is in the
//     catalogue, and is deleted with the observer.
//
//  7. The node table has one record for each node. Of two processes with one node's
//     identity only the later incarnation may register, and of two with the same
//     incarnation the first. A directory that was restored from a copy made before the
//     last registration never registers again: each start has a random number, and the
//     copy does not have the last one. What meta cannot tell, a copy made since, other nodes
//     can (package join, behind.go). Placement decides by a node's state and by how
//     long it has been gone in oracle time, which are in its record; gossip alone moves
//     nothing.
//
//     The record of a node that is gone and holds nothing is removed on request, or by
//     placement after a time. Its id stays noted, and its directory is refused from then
//     on: it holds promises to groups that have gone on without it. A process of that
//     node that was only cut off finds itself missing when it reads the node table, and
//     ends.
//
//  8. A conditional write whose answer was lost is read back. Counters carry a random
//     number of their writer, so that no two writers take one value for their own.
//
//  9. The cluster's policy is one record. It is written once when the cluster is founded
//     and later changed by conditional writes (docs/adr/0026). Requests and the splitter
//     make no more tablets than it allows, except for those that other nodes make at the
//     same moment. Grants are a part of it, and tokens a record of their own (ADR 0039).
//
// A crash loses nothing: everything is in the meta tablet. Called by: node, cluster/admin.
package meta
