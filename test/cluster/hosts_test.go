package cluster

import (
	"errors"
	"fmt"
	"os/exec"
	"testing"
)

// TestSweep: hosts of a process that was killed are gone when others are made, and are no
// reason not to make these.
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
		t.Error("something is left")
	}
}
