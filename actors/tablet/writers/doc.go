// Package writers contains the two actors through which all tablets of a node write to its
// store: the log actor appends to the Raft logs, and the state actor applies committed
// entries. Each combines the writes waiting in its mailbox into one and then answers their
// senders (group commit across tablets, design section 3).
//
// Invariants:
//  1. A write is in exactly one place: in the mailbox, in the batch that is being collected, in
//     the commit under way, which blocks the actor, or among those that wait for disk space. Its
//     Done is called once.
//  2. Each actor preserves the order in which writes arrived. Between the two there is no
//     order: a tablet applies an entry only after Raft has committed it, while the next
//     entries are being synced.
//  3. A permanently refused write ends its Stream: nothing that depends on it is executed.
//     Other streams continue.
//
// Callers: package tablet, in its turns, without waiting; packages snapshot and replicas,
// and node, which wait. After a crash, an append whose Done was called without an error is in the
// log; what was applied since the last checkpoint is applied again.
package writers
