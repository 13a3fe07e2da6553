// Package notifytest is what the tests of notifications (§2.4) share: txntest's cluster in memory,
// with methods that read and set notifications; a node on it made of the real lockd, scanner and
// observer actors; and a workload that knows what its observers must have computed. The workload
// needs only a percolator.DB and a percolator.Registry, so it runs on real tablets too.
//
// Nothing but tests imports it.
package notifytest
