// Package inspect reads stored state for diagnosis: all entries of one row (Figure 4 of the paper),
// rows as of a time, and the chain of transactions and observer runs of a change. It serves the
// commands history, why and trace and the console's pages; its results encode as JSON for both.
//
// It works through the caller's txn.Client, keeps no state, and changes nothing that another reader
// would not. Every answer is bounded and reports truncation.
package inspect
