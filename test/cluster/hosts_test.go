package cluster

import (
	"errors"
	"fmt"
	"os/exec"
	"testing"
)

// TestSweep: NewHosts removes the hosts of a killed process, and succeeds despite them.
func TestSweep(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	left := &Hosts{prefix: fmt.Sprintf("pc%d", dead.Process.Pid), subnet: "10.63.255."}
	mine, err := NewHosts(1)
	if errors.Is(err, ErrUnable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := mine.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := left.make(3); err != nil {
		t.Fatal(err, left.Close())
	}
	if err := sweep(); err != nil {
		t.Error(err)
	}
	if run("ip netns exec "+left.Namespace(0)+" true") == nil ||
		run("ip link show "+left.prefix+"b") == nil {
		t.Error("the namespace or the bridge of the killed process still exists")
	}
}
