// Package unique keeps a value with at most one owner: an email address of one user, a name
// of one page.
//
// The values are rows of a table of their own. Claim reads the row and writes it, so that of
// two transactions that claim one value at the same time, snapshot isolation lets one commit;
// the other runs again and finds it taken. That needs no observer and no lock: the check is
// the transaction's own.
package unique

import (
	"context"
	"errors"
	"fmt"

	percolator "github.com/percolator-go/percolator"
)

// ErrTaken is the error of claims of what somebody else owns; use errors.Is. See TakenError.
var ErrTaken = errors.New("unique: taken")

// TakenError says who owns what was claimed. It wraps ErrTaken.
type TakenError struct {
	Value, Owner string
}

// Error names the value and its owner.
func (e *TakenError) Error() string {
	return fmt.Sprintf("unique: %q is taken by %q", e.Value, e.Owner)
}

// Unwrap is ErrTaken.
func (e *TakenError) Unwrap() error { return ErrTaken }

// Constraint is a set of values of which each has at most one owner. Values are rows, up to
// 4 KiB; owners are any text but the empty one. It holds no state, and its methods may be
// called concurrently.
type Constraint struct {
	owner percolator.TypedColumn[string]
}

// New returns the constraint that is kept in the table, which is the application's to make, as
// by Registry.Table.
func New(table string) Constraint {
	col := percolator.Column{Table: table, Name: "owner"}
	return Constraint{owner: percolator.Typed(col, percolator.Text[string]())}
}

// Claim makes the owner that of the value, if the transaction commits; it may be that already. The error is a *TakenError if the value is another's.
func (c Constraint) Claim(ctx context.Context, tx *percolator.Tx, value, owner string) error {
	if owner == "" {
		return fmt.Errorf("%w: unique: %q is claimed for nobody", percolator.ErrInvalid, value)
	}
	has, taken, err := c.owner.Get(ctx, tx, value)
	switch {
	case err != nil:
		return err
	case taken && has != owner:
		return &TakenError{Value: value, Owner: has}
	}
	// Written also if it is the owner's already: a release at the same time conflicts then.
	c.owner.Set(tx, value, owner)
	return nil
}

// Release lets the value be claimed by others. It does nothing unless the owner is the
// value's, so that a late release takes nothing from a later owner.
func (c Constraint) Release(ctx context.Context, tx *percolator.Tx, value, owner string) error {
	has, taken, err := c.owner.Get(ctx, tx, value)
	if err == nil && taken && has == owner {
		c.owner.Delete(tx, value)
	}
	return err
}

// Change releases one value and claims another, both or none.
func (c Constraint) Change(ctx context.Context, tx *percolator.Tx, from, to, owner string) error {
	if err := c.Claim(ctx, tx, to, owner); err != nil || from == to {
		return err
	}
	return c.Release(ctx, tx, from, owner)
}

// Owner returns who owns the value; ok is false if nobody does.
func (c Constraint) Owner(ctx context.Context, r percolator.Reader, value string) (owner string,
	ok bool, err error) {
	return c.owner.Get(ctx, r, value)
}
