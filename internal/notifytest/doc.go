// Package notifytest is what the tests of notifications (§2.4) share: a cluster in memory (a txn.Transport over the pure
// rules), a node on it made of the real lockd, scanner and observer actors, and workloads that know what their observers
// must have computed. The workloads need only a percolator.DB and a percolator.Registry, so that the tests of package node
// run them on real tablets too.
//
// Nothing but tests imports it.
package notifytest
