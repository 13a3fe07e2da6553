package node

import (
	"errors"
	"fmt"
	"sync"

	"github.com/percolator-go/percolator/node/console"
)

// phase is the phase of a node's life: it starts, then serves, then closes. The zero value starts.
// It is safe for concurrent use.
type phase struct {
	mu      sync.Mutex
	why     string // last reason for which the start waits; "": none
	opened  bool   // the start has succeeded
	closing bool
}

// errStopping is the error of readiness once Close has begun.
var errStopping = errors.New("node: stopping")

// setWaiting notes why the start waits.
func (p *phase) setWaiting(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.why = why
}

// setServing notes that the start has succeeded.
func (p *phase) setServing() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened = true
}

// beginClose notes that the node closes, and reports whether it did so before.
func (p *phase) beginClose() (again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	again, p.closing = p.closing, true
	return again
}

// started reports whether the start has succeeded, so that all parts exist, also while they close.
func (p *phase) started() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened
}

// err returns nil while the node serves, and otherwise why it does not.
func (p *phase) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closing:
		return errStopping
	case p.opened:
		return nil
	case p.why != "":
		return fmt.Errorf("%w: %s", console.ErrStarting, p.why)
	}
	return console.ErrStarting
}
