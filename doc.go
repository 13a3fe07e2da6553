// Package percolator is the client of a Percolator repository: large-scale incremental
// processing with distributed transactions and notifications, after Peng and Dabek,
// "Large-scale Incremental Processing Using Distributed Transactions and Notifications"
// (OSDI 2010).
//
// A repository holds tables of cells; a cell is (table, row, column) and its value is
// bytes. Transactions give snapshot isolation over any number of cells (the paper's
// section 2.2). Observers are functions that run, in a transaction of their own, after
// somebody has changed a column (section 2.4).
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
//  1. Reads of one transaction see one snapshot: everything that committed at or below
//     its start timestamp, nothing else, and its own buffered writes over it.
//  2. A transaction that commits has had no concurrent writer on any cell it wrote. Cells
//     that it only read are not checked, so write skew is possible, as in the paper, unless
//     it is excluded by Tx.Lock or Tx.Validate.
//  3. ErrConflict and ErrLocked from a commit mean that it surely did not commit;
//     ErrCommitUnknown means that nobody could find out; every other error's text says
//     "not committed".
//  4. Transact runs its function again after a conflict, never after ErrCommitUnknown. A
//     transaction in which a read failed cannot commit, also when the function ignores
//     the error.
//  5. Bytes handed in are copied; bytes handed out belong to the caller.
//
// The same DB type works inside a node's process (package node) and over the network
// (Dial). This package links neither actors nor storage. When a client process dies, the
// locks of its unfinished commits expire (ten seconds by default) and whoever meets them
// next decides by their primary.
package percolator
