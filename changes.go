package percolator

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/percolator-go/percolator/internal/txn"
)

// Change is one committed write of a cell, or a resolved timestamp: an element of DB.Changes.
type Change struct {
	// Cell is the written cell with its commit timestamp. After a delete its value is nil.
	Cell
	// Deleted reports that the cell was deleted.
	Deleted bool
	// Initial reports that the cell belongs to the state with which an iteration from 0 begins: its
	// commit is older than the iteration.
	Initial bool
	// Resolved, if not 0, makes the element a resolved timestamp, and all other fields zero: every
	// change with a commit timestamp at or below it has been yielded before. It is a position from
	// which DB.Changes can continue.
	Resolved Timestamp
}

// changeJSON is a Change in JSON. Exactly one of the cell's key and Resolved is set.
type changeJSON struct {
	*cellKeyJSON
	Value    *bytesText `json:"value,omitempty"`
	CommitTS Timestamp  `json:"commit_ts,omitempty"`
	Deleted  bool       `json:"deleted,omitempty"`
	Initial  bool       `json:"initial,omitempty"`
	Resolved Timestamp  `json:"resolved,omitempty"`
}

// MarshalJSON writes {"resolved": …}, or the cell as Cell does, with "deleted" and "initial" if they
// are true, and without a value if it was deleted.
func (c Change) MarshalJSON() ([]byte, error) {
	if c.Resolved != 0 {
		return json.Marshal(changeJSON{Resolved: c.Resolved})
	}
	out := changeJSON{
		cellKeyJSON: &cellKeyJSON{bytesText(c.Row), c.Column}, CommitTS: c.CommitTS, Deleted: c.Deleted,
		Initial: c.Initial,
	}
	if !c.Deleted {
		value := bytesText(c.Value)
		out.Value = &value
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Change) UnmarshalJSON(data []byte) error {
	in := changeJSON{cellKeyJSON: &cellKeyJSON{}}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*c = Change{Deleted: in.Deleted, Initial: in.Initial, Resolved: in.Resolved}
	c.CellKey, c.CommitTS = CellKey{string(in.Row), in.Column}, in.CommitTS
	if in.Value != nil {
		c.Value = []byte(*in.Value)
	}
	return nil
}

// Changes yields the committed changes of the rows after a timestamp, and goes on as they are
// committed, until ctx ends or the loop is left. RowRange.Columns restricts a range to some columns.
//
// With from 0 it begins with all cells as of one timestamp, marked Initial, in the order of rows;
// that timestamp is the first resolved one. To begin with the present, pass Snapshot.StartTS of a
// new snapshot. To continue, pass the last resolved timestamp whose changes have been processed.
//
// Every change is yielded at least once, and the changes of one row in the order of their commits.
// An iteration that does not fail yields each change once, except those in overlapping ranges.
// Changes of different rows are not ordered; those up to a resolved timestamp are complete: applied
// in the order of CommitTS, they give the state of a snapshot at it. Resolved timestamps follow at
// most about 200 ms behind the present, or behind the start of the oldest transaction that is
// committing.
//
// The iteration reads ahead by a few pages and then waits for the loop. History is held for it as
// for an open snapshot. The last element is an error: ctx's; ErrSnapshotTooOld if the loop is so
// slow, or from so old, that changes are no longer in the history; ErrNoTable if a table was
// dropped; ErrUnavailable if a tablet cannot be reached for 20 s; ErrInvalid if from is in the
// future, no range can have rows, or one has Reverse, Limit or KeysOnly. Cells that a restore has
// written are yielded as Initial only, not as changes.
func (db *DB) Changes(ctx context.Context, from Timestamp, rows ...RowRange) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		spec, err := changeSpec(from, rows)
		if err == nil {
			err = db.check()
		}
		if err != nil {
			yield(Change{}, err)
			return
		}
		for c, err := range db.c.Changes(ctx, spec) {
			if err != nil {
				yield(Change{}, err)
				return
			}
			if !yield(changeOf(&c), nil) {
				return
			}
		}
	}
}

// changeSpec converts the arguments for internal/txn.
func changeSpec(from Timestamp, rows []RowRange) (txn.ChangeSpec, error) {
	spec := txn.ChangeSpec{After: txn.Timestamp(from)}
	for _, r := range rows {
		s, err := r.spec(nil)
		if err != nil {
			return spec, err
		}
		spec.Ranges = append(spec.Ranges, s)
	}
	return spec, nil
}

func changeOf(c *txn.Change) Change {
	if c.Resolved != 0 {
		return Change{Resolved: Timestamp(c.Resolved)}
	}
	key := CellKey{c.Cell.Row, Column{c.Table, c.Cell.Column}}
	return Change{
		Cell: Cell{key, c.Value, Timestamp(c.CommitTS)}, Deleted: c.Deleted, Initial: c.Initial,
	}
}

// Subscription is a named position in the changes, which the cluster stores. It survives restarts
// of the subscriber and of nodes. History is kept from the position on, up to the age that the
// policy allows (collection-max-hold); beyond that, Changes returns ErrSnapshotTooOld, and the
// subscriber has to begin again.
type Subscription struct {
	db   *DB
	name string
	at   Timestamp
}

// SubscriptionInfo describes a subscription.
type SubscriptionInfo struct {
	Name     string
	Position Timestamp // 0: nothing has been processed
	By       string    // the name in the certificate of its creator, or empty
	// Lost reports that changes after the position are no longer in the history.
	Lost bool
}

// Subscribe opens the subscription of that name, of 1 to 64 bytes, and creates it if there is none.
// It does not reserve the name: one process at a time should use it. A subscription belongs to the
// name in its creator's certificate; only a client with that name, or an operator, can move or
// delete it.
func (db *DB) Subscribe(ctx context.Context, name string) (*Subscription, error) {
	if err := db.check(); err != nil {
		return nil, err
	}
	at, err := db.c.AdvanceSubscription(ctx, name, 0)
	if err != nil {
		return nil, err
	}
	return &Subscription{db: db, name: name, at: Timestamp(at)}, nil
}

// Position returns the position as of the last call of Subscribe or Advance; 0 if nothing has been
// processed.
func (s *Subscription) Position() Timestamp { return s.at }

// Changes is DB.Changes from the position on. It does not move the position: the loop calls Advance
// with a resolved timestamp once it has processed the changes up to it. The rows should stay the
// same as long as the subscription exists.
func (s *Subscription) Changes(ctx context.Context, rows ...RowRange) iter.Seq2[Change, error] {
	return s.db.Changes(ctx, s.at, rows...)
}

// Advance stores a resolved timestamp as the position. A lower one than the stored one changes
// nothing. It is a write of the cluster's metadata: call it about once a second, not for every
// resolved timestamp. It must not be called concurrently with other methods.
func (s *Subscription) Advance(ctx context.Context, resolved Timestamp) error {
	if err := s.db.check(); err != nil {
		return err
	}
	at, err := s.db.c.AdvanceSubscription(ctx, s.name, txn.Timestamp(resolved))
	if err == nil {
		s.at = Timestamp(at)
	}
	return err
}

// Subscriptions returns all subscriptions, in the order of their creation.
func (db *DB) Subscriptions(ctx context.Context) ([]SubscriptionInfo, error) {
	if err := db.check(); err != nil {
		return nil, err
	}
	list, bound, err := db.c.Subscriptions(ctx, "")
	if err != nil {
		return nil, err
	}
	out := make([]SubscriptionInfo, len(list))
	for i, s := range list {
		out[i] = SubscriptionInfo{
			Name: s.Name, Position: Timestamp(s.Position), By: s.By,
			Lost: s.Position != 0 && s.Position < uint64(bound),
		}
	}
	return out, nil
}

// DeleteSubscription deletes a subscription, and with it its hold on history. It also succeeds if
// there is no subscription of that name.
func (db *DB) DeleteSubscription(ctx context.Context, name string) error {
	if err := db.check(); err != nil {
		return err
	}
	return db.c.DeleteSubscription(ctx, name)
}
