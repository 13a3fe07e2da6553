// Package leaktest looks for goroutines that a test has left, and knows those that belong
// to libraries for the life of the process. Used by tests only.
package leaktest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs a package's tests and fails if one has left a goroutine.
func Main(m *testing.M, more ...goleak.Option) {
	goleak.VerifyTestMain(m, append(known(), more...)...)
}

// Check fails the test if it leaves a goroutine that was not there when Check was called;
// call it first.
func Check(t *testing.T) {
	options := append(known(), goleak.IgnoreCurrent())
	t.Cleanup(func() { goleak.VerifyNone(t, options...) })
}

// throttling is longer than protoactor's dead letters wait.
const throttling = 2 * time.Second

// Settle is for tests in a bubble of package synctest whose actors may have sent a dead
// letter when they end: time in a bubble ends with the test, so the test waits for the
// end of their throttling, after all that it cleans up. Call it first.
func Settle(t testing.TB) { t.Cleanup(func() { <-time.After(throttling) }) }

// known are the libraries' own: protoactor's dead letters wait once for the end of their
// throttling.
func known() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"),
	}
}
