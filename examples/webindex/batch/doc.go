// Package batch computes the web index a second time: all at once, from the input files
// alone, without the observers' code and without a node. It also reads what an index
// holds and compares the two.
//
// Shared with the observers are only the HTML parser's glue (package page) and the names
// of tables and columns (package schema, which also says in words what is computed here).
// The package's dependencies hold no observer, store or actor; a test checks that.
package batch
