// Package percolator is the client of a Percolator repository: large-scale incremental
// processing with distributed transactions and notifications, after Peng and Dabek,
// "Large-scale Incremental Processing Using Distributed Transactions and Notifications"
// (OSDI 2010).
//
// A repository holds tables of cells; a cell is (table, row, column) and its value is
// a byte string. Transactions provide snapshot isolation over any number of cells (section
// 2.2 of the paper). Observers are functions that run after a change of a column, each run
// in a transaction of its own (section 2.4).
//
//	db, err := percolator.Dial(ctx, []string{"127.0.0.1:7800"}, percolator.ClientConfig{Insecure: true})
//	balance := percolator.Column{Table: "bank", Name: "balance"}
//	err = db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
//		v, _, err := tx.Get(ctx, "bob", balance)
//		if err != nil {
//			return err
//		}
//		tx.Set("bob", balance, debit(v))
//		return nil
//	})
//
// Invariants:
//  1. All reads of a transaction see one snapshot: what was committed at or below its start
//     timestamp, overlaid with its own buffered writes.
//  2. A committed transaction had no concurrent writer on any cell that it wrote. Cells that
//     it only read are not checked, so write skew is possible, as in the paper, unless
//     Tx.Lock or Tx.Validate excludes it.
//  3. ErrConflict and ErrLocked from a commit mean that the transaction is not committed.
//     ErrCommitUnknown means that the outcome is unknown. The text of every other error
//     says "not committed", except those of ErrTxDone and ErrManagedTx.
//  4. Transact retries its function after a conflict, never after ErrCommitUnknown. A
//     transaction with a failed read cannot commit, even if the function ignores the error.
//  5. Byte slices passed in are copied; byte slices returned belong to the caller.
//
// The same DB type works inside a node's process (package node) and over the network
// (Dial). This package links neither actors nor storage. When a client process dies, the
// locks of its unfinished commits expire (after ten seconds by default); the next
// transaction that encounters such a lock commits it or rolls it back as the primary lock
// decides or, in an asynchronous commit, all locks of the transaction.
package percolator
