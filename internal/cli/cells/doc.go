// Package cells has the commands that read, write and follow cells, and those for tables, columns
// and subscriptions. They call the library as any program does: a read is one snapshot, a write one
// transaction; only column delete uses many.
//
// A crash leaves at most the locks of one transaction, which expire; column delete has then deleted
// a part of the cells.
package cells
