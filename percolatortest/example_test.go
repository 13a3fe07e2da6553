package percolatortest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
)

var (
	said  = percolator.Column{Table: "guests", Name: "said"}
	heard = percolator.Column{Table: "guests", Name: "heard"}
)

// registerEcho registers the observer under test, as the program's main does.
func registerEcho(r *percolator.Registry) {
	r.Strong("echo", said, func(ctx context.Context, tx *percolator.Tx,
		n percolator.Notification) error {
		text, _, err := tx.Get(ctx, n.Row, said)
		if err != nil {
			return err
		}
		tx.Set(n.Row, heard, []byte(strings.ToUpper(string(text))))
		return nil
	})
}

// A test of an observer: write, run until idle, check. Two of its commits conflict on the way.
// In a real test, the function passed to inTest is the test function, and t its *testing.T.
func Example() {
	inTest(func(t testing.TB) {
		n := percolatortest.Start(t, registerEcho)
		n.Inject(t, percolatortest.Fault{
			Kind: percolatortest.CommitConflicts, Observer: "echo", Times: 2,
		})
		n.Set(t, "ann", said, "hello")
		n.RunUntilIdle(t)
		value, ok := n.Get(t, "ann", heard)
		fmt.Println(value, ok)
		fmt.Println(n.Stats(t, "echo").Conflicts, "conflicts")
	})
	// Output:
	// HELLO true
	// 2 conflicts
}
