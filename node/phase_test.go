package node

import (
	"errors"
	"strings"
	"testing"

	"github.com/percolator-go/percolator/node/console"
)

// TestPhase: a node is not ready while it starts, which it says with the reason, nor once it closes,
// also if it has never served.
func TestPhase(t *testing.T) {
	var p phase
	if err := p.err(); !errors.Is(err, console.ErrStarting) {
		t.Errorf("at first: %v", err)
	}
	p.setWaiting("for two nodes")
	if err := p.err(); !errors.Is(err, console.ErrStarting) || !strings.Contains(err.Error(), "for two nodes") {
		t.Errorf("while it waits: %v", err)
	}
	failed := phase{}
	if again := failed.beginClose(); again || failed.started() || !errors.Is(failed.err(), errStopping) {
		t.Errorf("a failed start closes: again %t, started %t, %v", again, failed.started(), failed.err())
	}
	p.setServing()
	if err := p.err(); err != nil || !p.started() {
		t.Errorf("serving: %v", err)
	}
	if p.beginClose() || !p.beginClose() {
		t.Error("want the second close to be the second one")
	}
	if err := p.err(); !errors.Is(err, errStopping) || !p.started() {
		t.Errorf("closing: %v, started %t", err, p.started())
	}
}
