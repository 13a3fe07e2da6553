// Package inspect reads what is stored, as it is, for whoever wants to look: everything that
// one row holds (Figure 4 of the paper), rows as of a time, and the chain of transactions and
// observers' runs that a change belongs to. The commands history, why and trace and the
// console's pages show it; what it returns is JSON for both.
//
// It is a client, over a txn.Client of its caller's: it keeps nothing, and changes nothing that
// another reader would not. Every answer is bounded, and says where it was cut.
package inspect
