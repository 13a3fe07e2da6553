// Package app makes an application with observers one binary (the paper's section 2.4): Main
// is the percolator command line, whose nodes run the application's observers, with the
// application's own commands and flags. A program that only opens nodes (node.Open,
// node.Run) or only dials a cluster (percolator.Dial) does not link it.
//
// Backups in s3:// need the import of backup/s3 in the application's main package; it is not
// implied, since it links the AWS SDK.
//
// Main keeps no state besides the channel of signals. What a crash does to the node is
// described in package node.
package app
