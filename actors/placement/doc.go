// Package placement decides which nodes hold the replicas of each tablet, and which of
// them lead (design section 9). Its actor runs where meta is led. It observes nodes and
// tablets in turns, and performs single steps that bring them nearer to their goal. It
// gives each tablet the configured number of replicas, as far as there are nodes; replaces
// replicas on nodes that are gone or drain; keeps voters in different zones; moves leaders
// away from full disks; spreads replicas and leaders evenly; and makes the moves that an
// operator orders.
//
// Every turn plans afresh, from the node table, the tablet map, the orders and what the
// tablets' leaders say: Make is a pure function from these to steps. A move takes three
// steps: a learner is added on the new node; when it has caught up, one joint change makes
// it a voter and the old voter a learner; that learner is removed. A half-done move is
// visible in the tablet's descriptor, and the next turn completes or undoes it.
//
// Invariants:
//  1. A change of replicas carries the epoch of the descriptor that it was planned from.
//     If two nodes believe that they lead meta, only one of their changes takes effect.
//  2. A voter is demoted only if the live voters that stay are a quorum and its
//     replacement, if it needs one, has caught up. A stale one, whose log lacks what it has
//     acknowledged, does not wait for a replacement: it takes no part anyway. No voter is
//     removed; it becomes a learner first.
//  3. No voter is demoted because of gossip alone. A node is gone when its record has said for
//     GoneAfter, in oracle time, that it is absent. The record is reset when gossip or any tablet's
//     leader hears from the node, unless the node itself reported a damaged store.
//  4. Every step decreases a measure that no other step increases: first replicas that are
//     missing or on nodes that are gone or drain, then voters sharing a zone, then the sum
//     of squares of how far nodes are from the mean in number, bytes and load beyond a
//     slack, which must decrease by a minimum. So placement comes to rest if the cluster
//     does.
//  5. There is at most one step per tablet at a time. A node gets no learner while maxIncoming of
//     its learners have not caught up, and a tablet without a learner gets none while maxChanging
//     tablets have one; for repairs that limit is half the number of nodes, if that is more.
//     Demotions are not limited, but a demoted voter counts as a learner.
//
// Package node starts it. Nothing is lost in a crash or when meta's leadership moves; at
// most a tablet is balanced again sooner than it would have been.
package placement
