package percolatortest_test

import (
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
)

// TestDebounceSurvives: what waits for its debounce is neither lost by the node's end, in
// order or not, nor forgotten by who waits until nothing is left to run.
func TestDebounceSurvives(t *testing.T) {
	for name, end := range map[string]func(*percolatortest.Node, testing.TB){
		"restart": (*percolatortest.Node).Restart, "crash": (*percolatortest.Node).Crash,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := percolatortest.Start(t, func(r *percolator.Registry) {
				users := percolator.NewRegistry()
				registerEcho(users)
				for _, o := range users.Observers() {
					r.Strong(o.Name, o.Column, o.Func, percolator.Debounce(300*time.Millisecond))
				}
			})
			n.Set(t, "ann", said, "hello")
			end(n, t)
			n.Set(t, "ben", said, "good day")
			n.Set(t, "ben", said, "good bye")
			n.RunUntilIdle(t)
			for row, want := range map[string]string{"ann": "HELLO", "ben": "GOOD BYE"} {
				if got, _ := n.Get(t, row, heard); got != want {
					t.Errorf("%s: %q, want %q", row, got, want)
				}
			}
		})
	}
}
