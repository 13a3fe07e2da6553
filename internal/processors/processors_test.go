package processors

import (
	"runtime"
	"testing"
)

// TestAddSpare: the number is raised once, unless the environment or a cgroup has set it.
func TestAddSpare(t *testing.T) {
	cpus, before := runtime.NumCPU(), runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for _, c := range []struct {
		name      string
		env       string
		now, want int
	}{
		{"default", "", cpus, cpus + spare},
		{"already raised", "", cpus + spare, cpus + spare},
		{"set by the environment", "3", cpus, cpus},
		{"limited by a cgroup", "", cpus + 1, cpus + 1}, // any number other than the machine's
	} {
		t.Setenv("GOMAXPROCS", c.env)
		runtime.GOMAXPROCS(c.now)
		AddSpare()
		if got := runtime.GOMAXPROCS(0); got != c.want {
			t.Errorf("%s: %d processors, want %d", c.name, got, c.want)
		}
	}
}
