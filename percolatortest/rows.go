package percolatortest

import (
	"context"
	"errors"
	"testing"

	percolator "github.com/percolator-go/percolator"
)

// Transact runs fn in a transaction, as percolator.DB's Transact does.
func (n *Node) Transact(t testing.TB, fn func(context.Context, *percolator.Tx) error) {
	t.Helper()
	ctx, cancel := n.callContext()
	defer cancel()
	if err := n.DB().Transact(ctx, fn); err != nil {
		t.Fatalf("percolatortest: transaction: %v", err)
	}
}

// Set writes one cell, in a separate transaction. It creates the table if it is missing.
func (n *Node) Set(t testing.TB, row string, col percolator.Column, value string) {
	t.Helper()
	n.mutate(t, col, func(tx *percolator.Tx) { tx.Set(row, col, []byte(value)) })
}

// Delete deletes one cell, in a separate transaction.
func (n *Node) Delete(t testing.TB, row string, col percolator.Column) {
	t.Helper()
	n.mutate(t, col, func(tx *percolator.Tx) { tx.Delete(row, col) })
}

// Notify triggers the observer of a weak column for the row, in a separate transaction.
func (n *Node) Notify(t testing.TB, row string, col percolator.Column) {
	t.Helper()
	n.mutate(t, col, func(tx *percolator.Tx) { tx.Notify(row, col) })
}

func (n *Node) mutate(t testing.TB, col percolator.Column, fn func(*percolator.Tx)) {
	t.Helper()
	ctx, cancel := n.callContext()
	defer cancel()
	do := func() error {
		return n.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			fn(tx)
			return nil
		})
	}
	err := do()
	if errors.Is(err, percolator.ErrNoTable) {
		if err = n.DB().CreateTable(ctx, percolator.TableSpec{Name: col.Table}); err == nil {
			err = do()
		}
	}
	if err != nil {
		t.Fatalf("percolatortest: write table %q column %q: %v", col.Table, col.Name, err)
	}
}

// Get returns the newest committed value of one cell; ok is false if the cell does not exist.
func (n *Node) Get(t testing.TB, row string, col percolator.Column) (value string, ok bool) {
	t.Helper()
	ctx, cancel := n.callContext()
	defer cancel()
	s, err := n.DB().Snapshot(ctx)
	if err != nil {
		t.Fatalf("percolatortest: open a snapshot: %v", err)
	}
	defer func() { _ = s.Close() }()
	v, ok, err := s.Get(ctx, row, col)
	if err != nil {
		t.Fatalf("percolatortest: read row %q: %v", row, err)
	}
	return string(v), ok
}

// Column returns the newest committed values of one column, by row.
func (n *Node) Column(t testing.TB, col percolator.Column) map[string]string {
	t.Helper()
	ctx, cancel := n.callContext()
	defer cancel()
	s, err := n.DB().Snapshot(ctx)
	if err != nil {
		t.Fatalf("percolatortest: open a snapshot: %v", err)
	}
	defer func() { _ = s.Close() }()
	out := map[string]string{}
	for c, err := range s.Scan(ctx, percolator.Rows(col.Table), col) {
		if err != nil {
			t.Fatalf("percolatortest: read column %q: %v", col.Name, err)
		}
		out[c.Row] = string(c.Value)
	}
	return out
}
