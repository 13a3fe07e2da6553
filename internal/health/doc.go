// Package health derives findings from the statuses of a cluster's nodes: what is wrong, and
// what to do about it. It is pure: no I/O, no clock, no goroutine. The Admin service
// (cluster/admin, ClusterStatus) gathers the statuses and calls it; `percolator doctor` and
// the console show the findings unchanged.
//
// A finding has a kind from a fixed set (Kinds; docs/operating/alerts.md has a section for
// each), a subject, a text on the problem and one on the remedy. A problem that stops requests
// from being served is critical; one that will, or that degrades slowly, is a warning; anything
// else worth knowing is informational.
package health
