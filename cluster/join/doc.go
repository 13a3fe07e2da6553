// Package join brings nodes into a cluster: a node's identity, founding, joining and coming
// back (design section 9). Self is the node's record in its store. Membership asks other nodes to
// be let in, and answers those that ask this one; heard keeps what they have said. Membership
// reaches meta through the interface Registry.
//
// Invariants:
//
//  1. A node serves nothing before its cluster's id and its own are durable, and belongs to
//     one cluster for good.
//
//  2. A promise is durable before it is given, and goes to one founder at a time.
//
//  3. Before a start is registered the node opens no replica until a majority of those that
//     it votes with have confirmed it.
//
//  4. A node of which another one has heard that its Raft log had come further than it had
//     when it was started discards its replicas.
//
// # Founding a cluster together
//
// N fresh nodes with the same --join and --bootstrap-expect N find each other by Hello: each asks
// the addresses that it was given and those that it hears of, and tells whoever asks of
// all fresh nodes that it has heard of. Who has answered within some seconds counts as
// there. Exactly one of them must found the cluster; the others join it like any other. A
// node founds when
//
//   - exactly N fresh nodes are there, itself included, all with the same N. If there are
//     more, nobody knows which belong together, and none founds;
//   - all N have promised to let it, itself included. A promise is durable, and goes to one
//     founder at a time.
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
// from most of theirs by more than MembershipConfig.MaxClockOff it is refused (ErrClock); if
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
// (confirm.go, docs/adr/0022). With a copy from within the same run it does not wait: it
// discards its replicas (behind.go, docs/adr/0051). Until meta is reached it asks the others, at the addresses
// where clients reach them, where they gossip now: all of a cluster may come back with
// new addresses.
//
// A crash loses nothing: a node's record is in its store. Called by: node.
package join
