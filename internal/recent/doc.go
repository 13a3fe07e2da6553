// Package recent keeps a bounded in-memory history of a node's last hour: figures every ten
// seconds (Points), and the load per minute of each tablet that it led (Heat). Of its mailboxes and
// contended rows it keeps the counts of the last minutes (Lately). It also merges the histories of
// several nodes into one of the cluster.
//
// It sends no requests and has no goroutine: package node/telemetry updates and reads it, and
// node/console merges the histories. A restart loses all.
package recent
