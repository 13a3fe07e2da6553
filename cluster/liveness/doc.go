// Package liveness keeps the promises of support between nodes, on which the leases of all tablets
// rest (docs/adr/0060). A node that leads tablets asks the nodes of their other voters for support,
// one message for each pair of nodes and Period, whatever the number of tablets. A node that supports
// another one has promised it a time during which its replicas take part in no election against
// the replicas that the other node leads, see actors/tablet/group.
//
// Invariants:
//
//  1. A promise counts from the sending of the request, on the clock of the node that asked, and for
//     a tenth less than the other node keeps it on its own clock. So it ends first on the node
//     that asked, as long as the speeds of the two clocks differ by less than a tenth. Only speeds
//     are compared, never times.
//
//  2. The clock of a node that asks for support counts the time in which its machine is suspended.
//     A node without such a clock only gives promises.
//
//  3. An epoch identifies the promises of one process to one process. Support is withdrawn only
//     after the last promise has run out, and then for good: later promises have another epoch.
//
//  4. A process that may have forgotten promises of an earlier one waits for as long as those can
//     last (Waiting). That promises were made is durable before the first one.
//
// A crash loses all promises, given and received. Called by: node, and the groups of its tablets.
package liveness
