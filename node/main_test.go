package node_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// atOnce is the number of concurrent tests that call t.Parallel; the flag -parallel overrides it.
// Those are the tests of over 3 s; they mostly wait for leases, elections and the pauses of jobs,
// so the number of cores does not matter. Tests of the whole process, of the speed of takeovers and
// restarts, of load or of short histories run before them, alone.
const atOnce = "6"

// TestMain sets the number of concurrent tests.
func TestMain(m *testing.M) {
	suppressRaces()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(m.Run())
}
