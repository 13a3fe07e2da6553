// Package placement decides which nodes hold the replicas of each tablet, and which of
// them lead (design section 9): the actor beside meta that looks at nodes and tablets
// again and again and does, a step at a time, what brings them nearer to where they ought
// to be. It gives tablets as many replicas as configured, as far as there are nodes;
// replaces those on nodes that are gone or drain; keeps zones apart; has nothing led
// where the disk is full; spreads replicas and leaders evenly; and makes the moves that
// an operator orders.
//
// What is to be done is found anew in every turn, from the node table, the tablet map,
// the orders and what the tablets' leaders say: Make is a pure function from that to
// steps. A move is four steps: a learner on the new node, which catches up; one joint
// change that makes it a voter and the old voter a learner; the removal of that. Whatever
// is half done is seen in the descriptor, and finished or undone as if it had just been
// thought of.
//
// Invariants:
//  1. A change of replicas is sent with the epoch of the descriptor that it was planned from: of two nodes that take
//     themselves for meta's leader, one has no effect.
//  2. A voter goes only if the live voters that stay are a quorum, and the one in its place has caught up. None is removed:
//     it is made a learner first.
//  3. No voter goes because of gossip. A node is gone when its record says since when, in oracle time, and that is
//     GoneAfter ago; neither gossip nor any tablet's leader has been seen to hear of it in between, or it said itself that
//     its store is damaged.
//  4. With every step something decreases that nothing else increases: replicas that are missing or on nodes that are gone
//     or drain, then voters in one zone, then the sum of squares of how far nodes are from the mean in number, bytes and load
//     beyond a slack, by more than is noise. So it comes to rest if the cluster does.
//  5. At most one step a tablet at a time, MaxChanging tablets with a learner at once, MaxIncoming learners a node.
//
// Called by: node, where meta is led. A crash, or the loss of meta's leadership, loses
// nothing: at most it balances a tablet sooner again than it would have.
package placement
