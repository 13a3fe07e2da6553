// Package percolatortest supports unit tests of observers. It runs a complete node in memory,
// which starts in a few milliseconds and opens no listener, and injects faults. A test writes
// rows, runs the observers until no notification is left, and checks their output:
//
//	n := percolatortest.Start(t, register)
//	n.Set(t, "row", column, "value")
//	n.RunUntilIdle(t)
//	got, _ := n.Get(t, "row", derived)
//
// It is the real node, with its transactions, tablets, scanners and observers, on an in-memory
// store. Start only changes its configuration: scans are more frequent, the backoff after
// failed runs is shorter, locks expire after 500 ms, there are one scanner and 8 workers, and the
// memtable is smaller, which limits a value to about 1 MiB. Config overrides this.
//
// # Faults
//
// Node.Inject injects a Fault: a conflict, a lost reply, an unknown outcome of a commit, a run
// that fails, panics, or dies between its commit and the clearing of the notification, or a
// tablet or oracle that is slow or unavailable. Node.Restart and Node.Crash end the node and
// start it again on the same state. Under all of these the effects of a correct strong
// observer happen exactly once, and those of a weak observer at least once (§2.4).
//
// # Invariants
//
//  1. Everything that Start starts ends before the test does, including all goroutines.
//     Dozens of nodes may run at once in parallel tests; they share no state.
//  2. A fault with a positive Times that never happens fails the test, since the test would
//     show nothing.
//  3. A node whose runs do not end within the timeout fails the test, with the notifications
//     that are left.
//
// Only tests may use the package: all data is lost when the process ends.
package percolatortest
