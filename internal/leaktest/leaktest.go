// Package leaktest finds goroutines that tests leak, and ignores those that libraries keep for the
// life of the process. For tests only.
package leaktest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs a package's tests and fails if one leaked a goroutine.
func Main(m *testing.M, more ...goleak.Option) {
	goleak.VerifyTestMain(m, append(known(), more...)...)
}

// Check fails the test if it leaks a goroutine that did not exist when Check was called. Call it
// first.
func Check(t *testing.T) {
	options := append(known(), goleak.IgnoreCurrent())
	t.Cleanup(func() { goleak.VerifyNone(t, options...) })
}

// throttling exceeds the throttling interval of protoactor's dead letters.
const throttling = 2 * time.Second

// Settle makes a test in a synctest bubble wait, after all its cleanups, until the throttling of
// dead letters has ended: a goroutine that waits for it would otherwise outlive the bubble. Call it
// first.
func Settle(t testing.TB) { t.Cleanup(func() { <-time.After(throttling) }) }

// known returns the options that ignore libraries' goroutines, such as the one in which protoactor
// waits for the end of dead letters' throttling.
func known() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"),
	}
}
