// Package unique implements uniqueness constraints: a value, such as an email address or a page
// name, has at most one owner.
//
// The values are rows of a table of their own. Claim reads and writes the row, so that of two
// transactions that claim a value concurrently only one commits; the other is retried and
// finds the value taken. This needs neither an observer nor a lock.
package unique

import (
	"context"
	"errors"
	"fmt"

	percolator "github.com/percolator-go/percolator"
)

// ErrTaken reports that another owner has the claimed value. The error is a *TakenError.
var ErrTaken = errors.New("unique: taken")

// TakenError names the owner of a claimed value. It wraps ErrTaken.
type TakenError struct {
	Value, Owner string
}

// Error names the value and its owner.
func (e *TakenError) Error() string {
	return fmt.Sprintf("unique: %q is taken by %q", e.Value, e.Owner)
}

// Unwrap returns ErrTaken.
func (e *TakenError) Unwrap() error { return ErrTaken }

// Constraint is a set of values with at most one owner each. A value is a row, up to 4 KiB; an
// owner is a non-empty string. Constraint is stateless, and its methods are safe for
// concurrent use.
type Constraint struct {
	owner percolator.TypedColumn[string]
}

// New returns a Constraint that uses the table.
func New(table string) Constraint {
	col := percolator.Column{Table: table, Name: "owner"}
	return Constraint{owner: percolator.Typed(col, percolator.Text[string]())}
}

// Register registers the table.
func (c Constraint) Register(r *percolator.Registry) {
	r.Table(percolator.TableSpec{Name: c.owner.Column.Table})
}

// Claim makes owner the owner of the value, if the transaction commits. Claiming again is
// allowed. The error is a *TakenError if the value has another owner.
func (c Constraint) Claim(ctx context.Context, tx *percolator.Tx, value, owner string) error {
	if owner == "" {
		return fmt.Errorf("%w: unique: claim of %q without an owner", percolator.ErrInvalid, value)
	}
	has, taken, err := c.owner.Get(ctx, tx, value)
	switch {
	case err != nil:
		return err
	case taken && has != owner:
		return &TakenError{Value: value, Owner: has}
	}
	// Write even if unchanged, so that a concurrent release conflicts.
	c.owner.Set(tx, value, owner)
	return nil
}

// Release makes the value available. It does nothing if the value has another owner, so that a
// late release does not affect a later owner.
func (c Constraint) Release(ctx context.Context, tx *percolator.Tx, value, owner string) error {
	has, taken, err := c.owner.Get(ctx, tx, value)
	if err == nil && taken && has == owner {
		c.owner.Delete(tx, value)
	}
	return err
}

// Change releases one value and claims another, atomically.
func (c Constraint) Change(ctx context.Context, tx *percolator.Tx, from, to, owner string) error {
	if err := c.Claim(ctx, tx, to, owner); err != nil || from == to {
		return err
	}
	return c.Release(ctx, tx, from, owner)
}

// Owner returns the owner of the value; ok is false if it has none.
func (c Constraint) Owner(ctx context.Context, r percolator.Reader, value string) (owner string,
	ok bool, err error) {
	return c.owner.Get(ctx, r, value)
}
