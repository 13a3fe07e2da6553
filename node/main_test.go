package node_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// atOnce is how many of the tests that say t.Parallel run at a time, unless -parallel says
// otherwise. Those are the tests of over three seconds; they wait for most of it, for
// leases, elections and the pauses of jobs, so that the number of cores is no measure.
// Tests that look at the whole process, at how fast a node takes over or answers one that
// comes back, at loads or at short histories run before them, alone.
const atOnce = "6"

// TestMain sets how many tests run at once.
func TestMain(m *testing.M) {
	suppressRaces()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(m.Run())
}
