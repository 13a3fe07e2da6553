package gateway

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	gw "github.com/percolator-go/percolator/api/gateway/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// Transactions in one request.

// maxName is the maximum length of a transaction's name, in bytes.
const maxName = 64

// errDecided ends a transaction without a commit: its answer is known.
var errDecided = errors.New("gateway: decided")

// edits are the changes of a transaction.
type edits struct {
	writes                                 []*gw.CellWrite
	sets                                   []percolator.CellKey // of writes
	deletes, notifications, locks, checked []percolator.CellKey
}

// editsOf returns the changes in a request.
func editsOf(req interface {
	GetWrites() []*gw.CellWrite
	GetDeletes() []*gw.Key
	GetNotifications() []*gw.Key
	GetLocks() []*gw.Key
	GetValidates() []*gw.Key
}) (e edits, err error) {
	e.writes = req.GetWrites()
	written := map[percolator.CellKey]bool{}
	for _, w := range e.writes {
		key, err := keyOf(w)
		if err != nil {
			return e, err
		}
		if written[key] {
			return e, txn.Invalid("the request writes column %q of row %q twice", key.Column.Name, key.Row)
		}
		written[key] = true
		e.sets = append(e.sets, key)
	}
	for to, keys := range map[*[]percolator.CellKey][]*gw.Key{
		&e.deletes: req.GetDeletes(), &e.notifications: req.GetNotifications(), &e.locks: req.GetLocks(),
		&e.checked: req.GetValidates(),
	} {
		if *to, err = keysOf(keys); err != nil {
			return e, err
		}
	}
	for _, key := range e.deletes {
		if written[key] {
			return e, txn.Invalid("a cell of row %q is both written and deleted", key.Row)
		}
	}
	return e, nil
}

// apply buffers the changes.
func (e *edits) apply(tx *percolator.Tx) {
	for i, k := range e.sets {
		tx.Set(k.Row, k.Column, append(e.writes[i].GetValueBytes(), e.writes[i].GetValue()...))
	}
	for _, k := range e.deletes {
		tx.Delete(k.Row, k.Column)
	}
	for _, k := range e.notifications {
		tx.Notify(k.Row, k.Column)
	}
	for _, k := range e.locks {
		tx.Lock(k.Row, k.Column)
	}
	for _, k := range e.checked {
		tx.Validate(k.Row, k.Column)
	}
}

// transaction is a request of Transact.
type transaction struct {
	req        *gw.TransactRequest
	edits      edits
	reads      []percolator.CellKey
	conditions []percolator.CellKey // the cells of the request's conditions
	outcome    outcome
}

// Transact implements the service Gateway.
func (s *service) Transact(ctx context.Context,
	r *connect.Request[gw.TransactRequest]) (*connect.Response[gw.TransactResponse], error) {
	req, who := r.Msg, callerIn(ctx)
	if len(req.Name) > maxName {
		return nil, txn.Invalid("the name has %d bytes; at most %d are possible", len(req.Name), maxName)
	}
	t := &transaction{req: req}
	var err error
	if t.edits, err = editsOf(req); err != nil {
		return nil, err
	}
	if t.reads, err = keysOf(req.Reads); err != nil {
		return nil, err
	}
	for i, c := range req.Conditions {
		key, err := keyOf(c)
		if err != nil {
			return nil, err
		}
		if c.Holds == nil {
			return nil, txn.Invalid("condition %d says nothing: set exists, equals, equals_bytes or commit_timestamp", i)
		}
		t.conditions = append(t.conditions, key)
	}
	intent := proto.CloneOf(req)
	intent.IdempotencyKey, intent.MaxRetries = "", nil
	if t.outcome, err = s.outcomes.of(ctx, who.identity, req.IdempotencyKey, intent); err != nil {
		return nil, err
	}
	answer, err := t.run(ctx, who.db)
	// Another run reads the key's outcome, which shows whether this commit took effect. That read
	// waits until the commit is decided.
	for t.outcome.given() && errors.Is(err, percolator.ErrCommitUnknown) && ctx.Err() == nil {
		answer, err = t.run(ctx, who.db)
	}
	if err != nil {
		s.outcomes.failed(err)
		return nil, err
	}
	return connect.NewResponse(answer), nil
}

// run runs the transaction, again after a conflict.
func (t *transaction) run(ctx context.Context, db *percolator.DB) (answer *gw.TransactResponse, err error) {
	var committed percolator.Timestamp
	opts := []percolator.TxOption{percolator.CommittedAt(&committed), percolator.Name(t.req.Name)}
	if t.req.MaxRetries != nil {
		opts = append(opts, percolator.MaxRetries(int(*t.req.MaxRetries)))
	}
	err = db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		var err error
		answer, err = t.once(ctx, tx)
		return err
	}, opts...)
	if errors.Is(err, errDecided) {
		return answer, nil
	}
	if err != nil {
		return nil, err
	}
	answer.Committed, answer.CommitTimestamp = true, uint64(committed)
	return answer, nil
}

// once reads, checks the conditions and buffers the changes. It returns errDecided if the transaction must
// not commit because the answer is final.
func (t *transaction) once(ctx context.Context, tx *percolator.Tx) (*gw.TransactResponse, error) {
	needed := append(append([]percolator.CellKey{}, t.reads...), t.conditions...)
	if t.outcome.given() {
		needed = append(needed, t.outcome.cell())
	}
	found := map[percolator.CellKey]percolator.Cell{}
	if len(needed) > 0 {
		cells, err := tx.GetMulti(ctx, needed...)
		if err != nil {
			return nil, err
		}
		found = byKey(cells)
	}
	if c, ok := found[t.outcome.cell()]; ok && t.outcome.given() {
		answer, err := t.outcome.stored(c)
		if err != nil {
			return nil, err
		}
		return answer, errDecided
	}
	answer := &gw.TransactResponse{
		Cells:          encoder{t.req.Encoding == gw.Encoding_ENCODING_BYTES}.cells(t.reads, found),
		StartTimestamp: uint64(tx.StartTS()),
	}
	for i, c := range t.req.Conditions {
		cell, exists := found[t.conditions[i]]
		if !holds(c, cell, exists) {
			answer.FailedConditions = append(answer.FailedConditions, uint32(i))
		}
		// Validating a cell that is also written has no effect.
		tx.Validate(t.conditions[i].Row, t.conditions[i].Column)
	}
	if len(answer.FailedConditions) > 0 {
		return answer, errDecided
	}
	t.edits.apply(tx)
	if t.outcome.given() {
		answer.Committed = true // it can be read only if this transaction commits
		if err := t.outcome.store(tx, answer); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// holds reports whether the condition holds for the cell.
func holds(c *gw.Condition, cell percolator.Cell, exists bool) bool {
	switch want := c.Holds.(type) {
	case *gw.Condition_Exists:
		return exists == want.Exists
	case *gw.Condition_Equals:
		return exists && string(cell.Value) == want.Equals
	case *gw.Condition_EqualsBytes:
		return exists && string(cell.Value) == string(want.EqualsBytes)
	case *gw.Condition_CommitTimestamp:
		return uint64(cell.CommitTS) == want.CommitTimestamp
	}
	return false
}
