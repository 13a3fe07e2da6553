// Package group is the Raft of one replica of a tablet, as a pure type: a Group has no
// I/O, no clock, no goroutine and no store. What happens to the replica goes in as calls
// (a message, a tick, a proposal, the end of a write); what is to be done about it comes
// out as a Ready (messages to send, entries to append, entries to apply, answers to
// ReadIndex) and as return values. A Group owns its raft.RawNode: nobody else steps it.
//
// It decides what goes beyond etcd's raft:
//   - which messages of other replicas raft may see (message.go);
//   - when the group rests and what wakes it, when a replica campaigns without waiting for
//     its election timeout, and when it asks the others for a leader (rest.go);
//   - how a change of the replicas goes, entry by entry (change.go, members.go);
//   - who takes the leadership over (transfer.go);
//   - how much of the log is kept (retention.go);
//   - when a replica has forgotten what it acknowledged, and takes no part (stale.go).
//
// testdata holds transcripts of whole groups, in the manner of etcd raft's: they show what
// each of these rules does, message by message.
//
// Invariants:
//  1. A commit index goes to the log with the next entry at the latest, though raft does
//     not repeat it: a replica that starts with an old configuration must know that there
//     is a newer one before it asks for votes.
//  2. MayLead is true only once an entry of the replica's own term is visible.
//  3. A message that is not from where it says, or that raft would take for a broken log,
//     is dropped.
//  4. A replica goes to rest only with all entries that its leader has, and is told to only
//     then.
//  5. The log is never truncated beyond the checkpoint.
//  6. A replica whose log is shorter than what its leader has of it as acknowledged neither
//     votes, leads nor acknowledges any more, and says so to the others.
//
// A crash takes all of a Group. It is made anew from its storage, as of the last
// checkpoint, and is handed the entries behind that once more.
//
// Called by: a tablet's actor, in its turns. A Group is not safe for concurrent use.
package group
