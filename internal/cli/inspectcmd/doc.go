// Package inspectcmd has the commands that show what a cluster stores and does, and that steer
// observers, notifications, locks and tablets.
//
// Commands that only read change nothing: history, why, trace and the listings read what is
// stored and resolve no lock; trace --search reads as scan does. A listing pages through the
// tablets; what it shows is not one snapshot, and a split on the way may show an entry twice.
//
// A file for each noun has the commands about it. Package inspect answers why, history and trace and
// advises; the commands print what it says.
//
// A crash of lock resolve or notify replay leaves the rest undone: run it again.
package inspectcmd
