package idle_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"syscall"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/test/cluster"
)

// profiles is the folder that a node writes its profiles into, in the node's environment.
const profiles = "PERCOLATOR_TEST_IDLE_PROFILES"

// observed, if it is not empty, makes a node run observers.
const observed = "PERCOLATOR_TEST_IDLE_OBSERVED"

// table is the table with the tablets.
const table = "t"

func TestMain(m *testing.M) {
	if dir := os.Getenv(profiles); dir != "" {
		_ = os.Unsetenv(profiles) // a node refuses settings that it does not know
		profile(dir)
	}
	if os.Getenv(observed) != "" {
		_ = os.Unsetenv(observed)
		cluster.Main(observe)
	}
	cluster.Main(nil)
	os.Exit(m.Run())
}

// observe registers an observer of the tablets' table, and a weak one of the same table. Nothing is
// ever written there.
func observe(r *percolator.Registry) {
	never := func(context.Context, *percolator.Tx, percolator.Notification) error { return nil }
	r.Strong("idle", percolator.Column{Table: table, Name: "c"}, never)
	r.Weak("idle-weak", percolator.Column{Table: table, Name: "w"}, never)
}

// profile makes this process, a node, write a profile of its CPU time from SIGUSR1 to SIGUSR2, and
// then one of its heap and its goroutines. Waiting for signals costs nothing.
func profile(dir string) {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() { // ends with the process
		var cpu *os.File
		for s := range heard {
			switch {
			case s == syscall.SIGUSR1 && cpu == nil:
				if cpu = create(dir, "cpu"); pprof.StartCPUProfile(cpu) != nil {
					cpu = nil
				}
			case s == syscall.SIGUSR2 && cpu != nil:
				pprof.StopCPUProfile()
				_ = cpu.Close()
				cpu = nil
				for _, kind := range []string{"heap", "goroutine"} {
					f := create(dir, kind)
					_ = pprof.Lookup(kind).WriteTo(f, 0)
					_ = f.Close()
				}
			}
		}
	}()
}

// create creates the file of a profile, named after the process, or truncates it.
func create(dir, kind string) *os.File {
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.pprof", kind, os.Getpid())))
	if err != nil {
		panic(err)
	}
	return f
}
