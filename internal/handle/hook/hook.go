// Package hook stores package percolator's functions that create and open handles. Package
// percolator sets them at initialization. Package handle, the only other importer, wraps them
// with types.
//
// Invariant: the functions are set once, during the initialization of package percolator.
package hook

import (
	"context"

	"github.com/percolator-go/percolator/internal/txn"
)

// Functions create and open handles of package percolator. Their types are any because that
// package imports this one.
type Functions struct {
	NewDB  func(*txn.Client) any                      // a *percolator.DB
	Client func(db any) *txn.Client                   // of a *percolator.DB
	WrapTx func(*txn.Txn) any                         // a *percolator.Tx
	WithDB func(context.Context, any) context.Context // with a *percolator.DB
}

var functions Functions

// Set stores the functions. It returns true, so that it can initialize a variable.
func Set(f Functions) bool {
	functions = f
	return true
}

// Get returns the functions that Set has stored.
func Get() Functions { return functions }
