package attack_test

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"syscall"
	"testing"
)

// profiles is the folder that a node writes its profiles into, in the node's environment.
// PROFILES=folder make attack sets it.
const profiles = "PERCOLATOR_TEST_ATTACK_PROFILES"

// profile makes this process, a node, write a profile of its heap and of its goroutines at SIGUSR1.
func profile(dir string) {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGUSR1)
	go func() { // ends with the process
		for range heard {
			for _, kind := range []string{"heap", "goroutine"} {
				f, err := os.Create(filepath.Join(dir,
					fmt.Sprintf("%s-%d.pprof", kind, os.Getpid())))
				if err != nil {
					panic(err)
				}
				_ = pprof.Lookup(kind).WriteTo(f, 0)
				_ = f.Close()
			}
		}
	}()
}

// profiles makes every node write its profiles, if there is a folder for them.
func (c *target) profiles(t *testing.T) {
	if os.Getenv("PROFILES") == "" {
		return
	}
	for i, p := range c.Nodes() {
		t.Logf("node %d is process %d", i, p.PID())
		if err := syscall.Kill(p.PID(), syscall.SIGUSR1); err != nil {
			t.Error(err)
		}
	}
}
