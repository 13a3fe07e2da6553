// Package group implements the Raft of one replica of a tablet as a pure type: a Group has no clock
// and no goroutine, and writes nothing; it only reads its log, through Storage. Its inputs are
// calls (a message, a tick, a proposal, the end of a write); its outputs are a Ready (messages to
// send, entries to append, entries to apply, answers to ReadIndex) and return values. A Group owns
// its raft.RawNode and alone steps it.
//
// It implements the rules beyond etcd's raft:
//   - which messages of other replicas raft may see (message.go);
//   - when the group is quiescent and what wakes it, when a replica campaigns without waiting for
//     its election timeout, and when it asks the others for the leader (rest.go);
//   - the entries of a change of replicas (change.go, members.go);
//   - the target of a leadership transfer (transfer.go);
//   - the lease of a leader (lease.go), and which elections wait for it (promise.go);
//   - the retention of the log (retention.go);
//   - when a replica lacks entries that it has acknowledged, and becomes inactive (stale.go).
//
// testdata contains transcripts of whole groups, in the style of etcd raft's, which show the effect
// of each of these rules, message by message.
//
// Invariants:
//  1. A commit index is written to the log with the next entry at the latest, although raft does
//     not repeat it: a replica that starts with an old configuration must know that a newer one
//     exists before it requests votes.
//  2. MayLead is true only once an entry of the replica's own term is visible.
//  3. A message with a wrong sender, or one that raft would treat as a broken log, is dropped.
//  4. A follower becomes quiescent only with all entries of its leader, which requests it only
//     then.
//  5. The log is never truncated beyond the checkpoint.
//  6. A replica whose log is shorter than the leader's record of its acknowledgments no longer
//     votes, leads or acknowledges, and reports that to the others.
//  7. While a leader holds its lease, no replica leads in a later term (docs/adr/0060).
//
// A crash loses the Group. It is created again from its storage, as of the last checkpoint, and
// receives the entries after that again.
//
// Called by: a tablet's actor, in its turns. A Group is not safe for concurrent use.
package group
