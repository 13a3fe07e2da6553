// Package health tells from what the nodes of a cluster say of themselves what is wrong with
// it, and what to do about it. It is pure: no I/O, no clock, no goroutine. The service Admin
// (cluster/admin, ClusterStatus) gathers and calls it; `percolator doctor` and the console
// show the findings as they are.
//
// A finding has a kind of a fixed set (Kinds), which docs/operating/alerts.md has a section for, a
// subject, one sentence that says what is wrong and one that says what to do. What is not
// served now is critical; what will harm, or does so slowly, is a warning.
package health
