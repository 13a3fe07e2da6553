// Package cells has the commands that read and write cells and that create, drop and list tables.
// They call the library as any program does: a read is one snapshot, a write one transaction.
//
// A crash leaves at most the locks of that transaction, which expire.
package cells
