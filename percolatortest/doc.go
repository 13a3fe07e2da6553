// Package percolatortest lets users test their observers in unit tests: a whole node in
// memory, that starts in a few milliseconds and listens nowhere, and faults to switch on.
// A test loads rows, runs the observers until nothing is left to run, and looks at what
// they have made:
//
//	n := percolatortest.Start(t, register)
//	n.Set(t, "row", column, "value")
//	n.RunUntilIdle(t)
//	got, _ := n.Get(t, "row", derived)
//
// It is the real node: its transactions, tablets, scanners and observers, over a store
// that keeps nothing on disk. What differs is tuned by Start: it looks for work more
// often, backs off for less time after failed runs, and its memtable is smaller, which
// bounds a value to about a mebibyte (WithConfig changes all that).
//
// # Faults
//
// Node.Inject switches a Fault on: conflicts, lost replies, outcomes that nobody knows,
// runs that fail, panic or die between their commit and the clearing of the notification,
// tablets and an oracle that are slow or do not answer. Node.Restart and Node.Crash end
// the node and go on with its state. An observer that is right under all of them is
// right: strong observers' effects happen exactly once, weak ones' at least once (§2.4).
//
// # Invariants
//
//  1. Everything that Start begins ends before the test does; no goroutine is left. Tens
//     of nodes may run at once in parallel tests; they share nothing.
//  2. An injected fault that is bounded by Times and never happens fails the test: it
//     would have tested nothing.
//  3. A node whose runs cannot end within the timeout fails the test and says what is
//     left.
//
// Its users are tests only. A crash of the process loses everything, as it should.
package percolatortest
