// Package hook is where package percolator leaves, when the program starts, how its
// handles are made and opened, for the packages of this module. Package handle takes it
// from there, with types: nobody else imports this one.
//
// Invariant: the functions are set once, while package percolator is initialised. A
// crash can't concern it.
package hook

import (
	"context"

	"github.com/percolator-go/percolator/internal/txn"
)

// Functions make and open handles of package percolator, which are any here because that
// package imports this one.
type Functions struct {
	NewDB  func(*txn.Client) any                      // a *percolator.DB
	Client func(db any) *txn.Client                   // of a *percolator.DB
	WrapTx func(*txn.Txn) any                         // a *percolator.Tx
	WithDB func(context.Context, any) context.Context // with a *percolator.DB
}

var functions Functions

// Set stores the functions. It returns something, so that it can initialise a variable.
func Set(f Functions) bool {
	functions = f
	return true
}

// Get returns them.
func Get() Functions { return functions }
