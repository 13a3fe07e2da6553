// Package app builds an application with observers into one binary (the paper's section 2.4): Main
// runs the percolator command line, whose nodes run the application's observers, with the
// application's own commands and flags. A program that only opens nodes (node.Open, node.Run) or only
// dials a cluster (percolator.Dial) does not need it.
//
// Backups to s3:// require the application's main package to import backup/s3; app does not import it,
// because it links the AWS SDK.
//
// Main has no state except the channel of signals. Package node describes the effects of a crash.
package app
