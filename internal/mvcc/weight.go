package mvcc

import "strings"

// Weights bound what one cell of an operation adds to its tablet's batch in the store.
// Clients cut transactions into messages by them before they send anything, so that a
// tablet never refuses as too large what a message holds: not the prewrite, and not what
// has to follow it, a commit or a rollback. Each is the sum of all effects that the
// operation can have on the cell, as store and log count them. They are pure functions; the
// tablet's tests compare them with what it encodes.

const (
	// effectWeight bounds the overhead of an effect besides its key and the user's bytes in it:
	// timestamps, the worker, and the counts added by the log's entry and the store.
	effectWeight = 80
	// addressWeight bounds the overhead of a cell's address in a value, besides its row and column.
	addressWeight = 16
	// weightChunk is slightly less than the bytes of a long value that the store puts into one
	// entry.
	weightChunk = 250 << 10
)

// KeyBytes bounds the length of the cell's keys in the store: group, table, row, class,
// column and a timestamp. A zero byte of a row or column takes two.
func (c Cell) KeyBytes() int {
	return 1 + 4 + escapedBytes(c.Row) + 1 + escapedBytes(c.Column) + 8
}

func escapedBytes(s string) int { return len(s) + strings.Count(s, "\x00") + 2 }

// effects returns the weight of n effects on the cell.
func (c Cell) effects(n int) int { return n * (c.KeyBytes() + effectWeight) }

// address returns the weight of the cell's address in a value.
func (c Cell) address() int { return addressWeight + len(c.Row) + len(c.Column) }

// valueWeight returns the weight of a value of n bytes under the cell's key, cut into chunks if it
// is long.
func (c Cell) valueWeight(n int) int { return n + c.effects(n/weightChunk) }

// PrewriteWeight returns the weight of prewriting a value of n bytes: the lock, and the value
// apart from it if it is long. It does not count the secondaries of an asynchronous commit, for
// which request.Router.BatchBytes leaves room.
func (c Cell) PrewriteWeight(n int, primary Cell) int {
	return c.effects(2) + primary.address() + c.valueWeight(n)
}

// DecisionWeight returns the weight of committing, resolving or rolling back the cell: the lock's
// end, the new record, the one that it moves to the history, and a notification. Short values are
// in the records.
func (c Cell) DecisionWeight(l Limits) int { return c.effects(4) + 2*l.Inline + c.notified(l) }

// OnePhaseWeight returns the weight of writing a value of n bytes and committing it at once.
func (c Cell) OnePhaseWeight(n int, l Limits) int {
	return c.effects(4) + l.Inline + c.notified(l) + c.valueWeight(n)
}

// notified bounds the weight of a notification written by a commit of the cell beyond an effect on
// the cell: the error of a failed run, if the notification is newer than the commit, and the
// observed column, if the cell is an acknowledgment.
func (c Cell) notified(l Limits) int {
	if c.IsAck() {
		return maxNotifyError + 2*l.Column
	}
	return maxNotifyError
}

// IntentWeight returns the weight of a weak notification in a prewrite.
func (c Cell) IntentWeight(primary Cell) int { return c.effects(1) + primary.address() }

// IntentDecisionWeight returns the weight of committing, resolving or rolling back an intent.
func (c Cell) IntentDecisionWeight() int { return c.effects(2) + maxNotifyError }

// NotifyWeight returns the weight of a notification. It includes the error of a failed run,
// which an existing entry with a newer timestamp keeps.
func (c Cell) NotifyWeight() int { return c.effects(1) + maxNotifyError }
