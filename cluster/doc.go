// Package cluster is how a node knows the cluster: its own identity, the cluster's
// tables, tablet map and observer catalogue in the meta tablet, where each tablet is
// reached, and how nodes become one cluster (design section 9). Who is alive is package
// gossip's.
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
//  8. A node serves nothing before its cluster's id and its own are durable, and belongs to one cluster for good.
//
//  9. A mutation whose answer was lost is not sent again by the Carrier, which finds whoever leads a tablet. A conditional
//     write to meta is read back then: counters carry a number of their writer's, so that no two take one value for their own.
//
//  10. The cluster's policy is one record, written once when the cluster is founded and changed on condition of what it was
//     (docs/adr/0026). Who makes tablets on request, or by size, makes no more than it allows, but for what other nodes make
//     at the same moment.
//
// # Founding a cluster together
//
// N fresh nodes with the same --join and --expect N find each other by Hello: each asks
// the addresses that it was given and those that it hears of, and tells whoever asks of
// all fresh nodes that it has heard of. Who has answered within some seconds counts as
// there. Exactly one of them must found the cluster; the others join it like any other. A
// node founds when
//
//   - exactly N fresh nodes are there, itself included, all with the same N. More: which belong together nobody knows, and
//     none founds;
//   - all N have promised to let it, itself included. A promise is durable, and goes to one founder at a time.
//
// So two nodes that see the same N cannot both found: each needs the promise of every
// node, the other one included. Nodes are asked in the order of their ids, as one takes
// several locks: of two founders one is refused by the first node that both ask. The node
// with the lowest id asks at once, each next one some seconds later: any of them can
// found if the lowest one does not.
//
// What a crash does. A process that ends between promise and founding comes back with its
// directory, remembers, and is asked again; the founder that comes back asks again, or
// has founded. A promise never expires: who holds it may have founded, and be away just
// now. Only the founder itself gives promises back, when it is refused: it knows that it
// has not founded. That is how it goes on after a directory was lost and other nodes are
// there than those of the first attempt. Attempts are numbered, so that a late word of
// giving back does not undo the promise of a later attempt. One case needs a person: the
// directory of a founder that holds promises is lost. Nobody can know whether it had
// founded; the log of the others says what to do. A node that has waited for others never
// begins a cluster by itself (ErrWaiting).
//
// Clocks. A fresh node compares its clock with what the others say in their answers to
// Hello, when it joins and when all that are to found a cluster are there. If it is off
// from most of theirs by more than DoorConfig.MaxClockOff it is refused (ErrClock); if
// another one's is, nobody founds until that has gone or been set. A node of the cluster
// comes back whatever its clock says, and is judged when it leads meta.
//
// # Coming back
//
// A node that belongs to a cluster registers each incarnation in meta: with the help of
// any node that answers within seconds, or, when all start at once, by itself as soon as
// meta has a leader. A process that is refused (its identity in use, or a later
// incarnation registered) must end. Before it is registered it opens no replica until a
// majority of those that it votes with have confirmed that its directory is no old copy
// (confirm.go, docs/adr/0022). Until meta is reached it asks the others, at the addresses
// where clients reach them, where they gossip now: all of a cluster may come back with
// new addresses.
//
// A crash loses nothing: all of it is in the meta tablet or the store. Called by: node.
package cluster
