// Package join makes nodes members of a cluster: a node's identity, founding, joining and
// returning (design section 9). Self is the node's record in its store. Membership contacts other
// nodes and handles their requests; heard keeps what they have reported. Membership reaches meta
// through the interface Registry.
//
// Invariants:
//
//  1. A node serves nothing before its cluster's id and its own are durable, and belongs to
//     one cluster for good.
//
//  2. A promise is durable before it is given, and has one founder at a time.
//
//  3. Until its start is registered a node opens no replica before a majority of the nodes
//     that it votes with have confirmed the start.
//
//  4. A node discards its replicas if another node knows a higher position of its Raft log
//     than it had when it was started.
//
// # Founding a cluster together
//
// N fresh nodes with the same --join and --bootstrap-expect N discover each other by Hello: each
// contacts the addresses that it was given and those that it receives, and responds with all
// fresh nodes that it knows. A node that has responded within freshFor counts as present. Exactly
// one of them must found the cluster; the others join it like any other. A node founds when
//
//   - exactly N fresh nodes are present, itself included, all with the same N. If there are
//     more, it is unknown which belong together, and none founds;
//   - all N, itself included, have promised it the founding. A promise is durable, and has one
//     founder at a time.
//
// Two nodes that see the same N therefore cannot both found: each needs the promise of every
// node, including the other. Promises are requested in the order of node ids, as one acquires
// several locks: of two founders one is rejected by the first node that both ask. The node with
// the lowest id starts at once, each next one rankPause later: any of them can found if the
// lowest one does not.
//
// After a crash between promise and founding a process restarts with its directory, remembers
// its promise, and is asked again; a restarted founder asks again, or has founded. A promise
// never expires: its holder may have founded and be down at the moment. Only the founder itself
// withdraws promises, when it is rejected: it knows that it has not founded. It can thus continue
// after a directory was lost and other nodes are present than in the first attempt. Attempts are
// numbered, so that a late withdrawal does not undo the promise of a later attempt. One case
// needs an operator: the directory of a founder that holds promises is lost. Whether it had
// founded is then unknown; the log of the others describes the remedy. A node that has waited
// for others never founds a cluster alone (ErrWaiting).
//
// Clocks. A fresh node compares its clock with those in the responses to Hello, when it joins
// and when all founding nodes are present. If it differs from most of theirs by more than
// MembershipConfig.MaxClockOff it is rejected (ErrClock); if another node's does, no node founds
// until that node has left or its clock is set. A member returns whatever its clock shows, since
// that is checked when it leads meta.
//
// # Returning
//
// A member registers each incarnation in meta: through any node that responds within
// rejoinTimeout, or, when all start at once, by itself as soon as meta has a leader. A process
// that is rejected (its identity in use, or a later incarnation registered) must exit. Until it
// is registered it opens no replica before a majority of the nodes that it votes with have
// confirmed that its directory is not an old copy (confirm.go, docs/adr/0022). If the directory is
// a copy made since the last start, the node does not wait: it discards its replicas (behind.go,
// docs/adr/0051). Until meta is reached it asks the others, at their client addresses, for their
// current gossip addresses: all nodes of a cluster may return with new addresses.
//
// A crash loses nothing: a node's record is in its store. Called by: node.
package join
