package attack_test

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"syscall"
	"testing"
	"time"
)

// profiles is the folder that a node writes its profiles into, in the node's environment.
const profiles = "PERCOLATOR_TEST_ATTACK_PROFILES"

func profile(dir string) {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGUSR1)
	go func() { // ends with the process
		for range heard {
			for _, kind := range []string{"heap", "goroutine"} {
				f, _ := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.pprof", kind, os.Getpid())))
				_ = pprof.Lookup(kind).WriteTo(f, 0)
				_ = f.Close()
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			m.BySize = [61]struct {
				Size           uint32
				Mallocs, Frees uint64
			}{}
			f, _ := os.Create(filepath.Join(dir, fmt.Sprintf("mem-%d.txt", os.Getpid())))
			m.PauseNs, m.PauseEnd = [256]uint64{}, [256]uint64{}
			fmt.Fprintf(f, "alloc %d MiB sys %d idle %d released %d inuse %d stack %d numgc %d lastgc %d next %d forced %d\n", m.HeapAlloc>>20, m.Sys>>20, m.HeapIdle>>20, m.HeapReleased>>20, m.HeapInuse>>20, m.StackInuse>>20, m.NumGC, m.LastGC, m.NextGC>>20, m.NumForcedGC)
			_ = f.Close()
		}
	}()
}

func (c *target) profiles(t *testing.T) {
	for _, p := range c.Nodes() {
		_ = syscall.Kill(p.PID(), syscall.SIGUSR1)
		t.Logf("pid %d", p.PID())
	}
	time.Sleep(3 * time.Second)
}
