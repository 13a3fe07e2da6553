// Package writers has the two actors through which all tablets of a node write to its
// store: the log actor appends to the Raft logs, and the state actor applies what is
// committed. Each drains what waits in its mailbox into one write and then tells each who
// asked (group commit across tablets, design section 3).
//
// Invariants:
//  1. A write is in exactly one place: in the batch that gathers, in the commit under
//     way, which blocks the actor, or among those that wait for room on the disk. Its
//     Done is called once.
//  2. Each actor keeps the order in which writes came to it. Between the two there is
//     none: a tablet applies an entry only after Raft has committed it, and meanwhile the
//     next entries are synced.
//  3. A write that is refused for good ends its Stream: nothing that rests on it is
//     carried out. Other streams go on.
//
// Called by: package tablet, in its turns, without waiting; packages snapshot and
// replicas, and node, which wait. After a crash, an append whose Done was called is in
// the log; what was applied since the last checkpoint is applied once more.
package writers
