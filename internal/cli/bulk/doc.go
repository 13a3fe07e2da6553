// Package bulk has the commands that move many rows: load, export, backup and restore.
//
// Invariants:
//  1. A progress file never counts data that is not durable.
//  2. An interrupted command continues when it is run again, unless it reads standard input or
//     writes standard output; no row is ever half written.
//  3. FILE of an export is complete or absent or, with --overwrite, what it was before.
//
// load.go reads and checks a file, loadrun.go keeps several transactions under way; export.go
// writes a file from one snapshot; rowjson.go is the form of a row in both, and resume.go stores
// their progress. backup.go and backupschedule.go print what package backup does.
//
// A crash leaves the locks of transactions under way, a progress file beside the data, and for a
// minute the lease that keeps the history of an export's snapshot. A crash of restore or load
// --bulk leaves tables that cannot be opened until the command has been run again, or the table is
// dropped.
package bulk
