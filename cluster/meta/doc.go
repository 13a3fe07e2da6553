// Package meta stores the cluster's own records in the meta tablet: tables, the tablet map, the
// node table, orders of operators, the observer catalogue, the policy, the progress of history
// collection and the leases on history, the progress of back-fills, the console's tokens, the
// schedules of backups, and the recoveries.
//
// Each topic is a type, and Meta has one of each. All of them read and
// change records through records.go. A record is a message in a raw cell and changes by a
// conditional write, so any number of nodes may change it concurrently.
//
// Invariants:
//
//  1. Table and tablet ids are never reused: each comes from a counter in meta that a
//     conditional write raises.
//
//  2. A table has a tablet boundary at its start before its name can be looked up. Its split
//     keys are pending in its record until a tablet begins at each (ADR 0054).
//
//  3. The tablet map follows the tablets: of two descriptors of a tablet, or that hold a
//     row, the one with the higher epoch is valid. A crash between a split or a merge and its
//     record in meta is repaired by the tablet's next report. The outcome of a merge is
//     stored in the two tablets, never in a record.
//
//  4. A column counts as observed only after every tablet has applied the catalogue's
//     version (design section 7). Meta records a version as complete only after every
//     tablet has it. A newer version is sent to the tablets by the node that wrote it, by each
//     node that starts, and by the node that leads meta (publish.go). Nothing else waits for
//     an unavailable tablet.
//
//  5. Operators' settings of an observer (paused, limit, retired) are in the catalogue and
//     survive every process. The entry of a retired observer stays until its
//     notifications are removed. Until then its name and its column cannot be used, so
//     that no new observer inherits the notifications. Acknowledgments stay in their
//     rows: each is older than any change that a later observer of the name receives,
//     so it hides none.
//
//  6. The record of a back-fill changes on condition that its observer is in the
//     catalogue, and is deleted with the observer.
//
//  7. The node table has one record for each node. Of two processes with one node's
//     identity only the later incarnation may register, and of two with the same
//     incarnation the first. A directory restored from a copy made before the last
//     registration never registers again: each start has a random number, and the copy lacks
//     the last one. A copy made since then is recognized not by meta but by other nodes
//     (package join, behind.go). Placement decides by a node's state and the time since it
//     was last alive, in oracle time, both in its record; gossip alone moves nothing.
//
//     The record of a node that is gone and holds no replica is removed on request, or by
//     placement after a time, and that of a node that a recovery declared dead in any case. Its
//     id is kept, and its directory is rejected from then on: it contains votes for groups that
//     have since continued without it. A process of that node
//     that was only partitioned finds its record missing in the node table, and exits.
//
//  8. A conditional write whose response was lost is read back. Counters carry a random
//     number of their writer, so that no two writers mistake one value for their own.
//
//  9. The cluster's policy is one record. It is written once when the cluster is founded
//     and later changed by conditional writes (docs/adr/0026). Requests and the splitter
//     create no more tablets than it allows, except for those that other nodes create
//     concurrently. Grants are a part of it; tokens are a separate record (ADR 0039).
//
// A crash loses nothing: everything is in the meta tablet. Called by: node, cluster/admin.
package meta
