package liveness

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/wire"
)

// pair is two processes with clocks of their own.
type pair struct {
	now    time.Duration // true time
	speeds [2]float64
	nodes  [2]*Node
}

func newPair(first, second float64) *pair {
	p := &pair{now: time.Hour, speeds: [2]float64{first, second}}
	for i := range p.nodes {
		p.nodes[i] = p.boot(i, 1, false)
	}
	return p
}

func (p *pair) boot(i int, incarnation uint64, promised bool) *Node {
	return New(Config{
		Clock:       func() time.Duration { return time.Duration(float64(p.now) * p.speeds[i]) },
		Incarnation: incarnation, Epoch: uint64(i+1)<<32 + incarnation<<16, Promised: promised,
		MayPromise: func() bool { return true }, MayAsk: func() bool { return true },
	})
}

// ask has the first node ask the second, with the times on the way there and back.
func (p *pair) ask(there, back time.Duration) (epoch uint64) {
	p.nodes[0].SupportUntil(2, 0) // a lease needs it
	_, sent := p.nodes[0].Asked()
	p.now += there
	epoch, lasts := p.nodes[1].Promise(1, p.nodes[0].cfg.Incarnation)
	p.now += back
	p.nodes[0].Answered(2, sent, epoch, lasts)
	return epoch
}

func noted() error { return nil }

// TestPromiseEndsFirstWhereItCounts: support cannot be withdrawn while the other node counts on it,
// however long the messages take and however the speeds of the clocks differ within the bound.
func TestPromiseEndsFirstWhereItCounts(t *testing.T) {
	for _, speeds := range [][2]float64{{1, 1}, {0.95, 1.05}, {1.05, 0.95}, {0.901, 1}, {1, 1.11}} {
		for _, way := range [][2]time.Duration{{0, 0}, {300 * time.Millisecond, 0}, {0, 300 * time.Millisecond}} {
			t.Run(fmt.Sprint(speeds, way), func(t *testing.T) {
				p := newPair(speeds[0], speeds[1])
				p.ask(0, 0)
				_ = p.nodes[1].Durable(noted)
				epoch := p.ask(way[0], way[1])
				counted := false
				for range 2000 {
					counts := p.nodes[0].Now() < p.nodes[0].SupportUntil(2, epoch)
					counted = counted || counts
					if withdrawn := p.nodes[1].Withdraw(1, epoch); counts && withdrawn {
						t.Fatal("LEASE-BROKEN: the support is withdrawn while the other node counts on it")
					} else if withdrawn {
						break
					}
					p.now += time.Millisecond
				}
				if !counted {
					t.Error("the promise never counted")
				}
			})
		}
	}
}

// TestWithdrawnForGood: after a withdrawal, promises have another epoch, and the old one counts for
// nothing.
func TestWithdrawnForGood(t *testing.T) {
	p := newPair(1, 1)
	p.ask(0, 0)
	_ = p.nodes[1].Durable(noted)
	epoch := p.ask(0, 0)
	if p.nodes[1].Supported(1) != epoch || p.nodes[1].Withdraw(1, epoch) {
		t.Fatal("a promise that holds was withdrawn")
	}
	p.now += Duration
	if p.nodes[1].Supported(1) != 0 || !p.nodes[1].Withdraw(1, epoch) {
		t.Fatal("a promise that has run out cannot be withdrawn")
	}
	later := p.ask(0, 0)
	if later == epoch || p.nodes[0].SupportUntil(2, epoch) != 0 ||
		p.nodes[0].SupportUntil(2, later) == 0 {
		t.Errorf("LEASE-BROKEN: promises have epoch %d, and had %d before the withdrawal", later, epoch)
	}
	if !p.nodes[1].Withdraw(1, epoch) {
		t.Error("what was withdrawn once is not any more")
	}
}

// TestRefused: a node whose promise was refused gets another only after the refused one has run
// out, and with a later epoch.
func TestRefused(t *testing.T) {
	p := newPair(1, 1)
	p.ask(0, 0)
	_ = p.nodes[1].Durable(noted)
	epoch := p.ask(0, 0)
	p.nodes[1].Refuse(1, epoch)
	p.now += Duration - time.Millisecond
	if again := p.ask(0, 0); again != 0 || p.nodes[1].Withdraw(1, epoch) {
		t.Fatalf("a refused node got the promise %d, or lost the last one", again)
	}
	p.now += time.Millisecond
	if later := p.ask(0, 0); later == 0 || later == epoch {
		t.Errorf("after the refusal the epoch is %d, and was %d", later, epoch)
	}
}

// TestRestartedNode: the promises to a process do not last for the next one of the same node, which
// gets its own once they have run out, and no earlier one gets any.
func TestRestartedNode(t *testing.T) {
	p := newPair(1, 1)
	p.ask(0, 0)
	_ = p.nodes[1].Durable(noted)
	epoch := p.ask(0, 0)
	p.nodes[0] = p.boot(0, 2, true)
	if !p.nodes[0].Waiting() {
		t.Error("a process does not wait out the promises of the one before it")
	}
	if got := p.ask(0, 0); got != 0 {
		t.Errorf("the next process has the promise %d while those of the last one hold", got)
	}
	p.now += Duration
	if got := p.ask(0, 0); got == 0 || got == epoch || p.nodes[0].Waiting() {
		t.Errorf("the next process has the promise %d, and the last one had %d", got, epoch)
	}
	if got, _ := p.nodes[1].Promise(1, 1); got != 0 {
		t.Errorf("a former process got the promise %d", got)
	}
}

// TestNoPromiseBeforeItIsDurable: a node that could not record that it gives promises gives none.
func TestNoPromiseBeforeItIsDurable(t *testing.T) {
	p := newPair(1, 1)
	if got := p.ask(0, 0); got != 0 {
		t.Fatalf("the first promise %d is not durable", got)
	}
	full := errors.New("full")
	if err := p.nodes[1].Durable(func() error { return full }); !errors.Is(err, full) {
		t.Errorf("Durable returned %v", err)
	}
	if got := p.ask(0, 0); got != 0 {
		t.Errorf("the promise %d is not durable", got)
	}
	if err := p.nodes[1].Durable(noted); err != nil || p.ask(0, 0) == 0 {
		t.Errorf("no promise follows, or %v", err)
	}
}

// TestUnusedIsNotAsked: a node is asked while leases need it, counts as missed only then, and leaves
// nothing to do afterwards.
func TestUnusedIsNotAsked(t *testing.T) {
	p := newPair(1, 1)
	p.ask(0, 0)
	_ = p.nodes[1].Durable(noted)
	p.ask(0, 0)
	p.now += Duration
	if nodes, _ := p.nodes[0].Asked(); len(nodes) != 1 || p.nodes[0].Missed() != 1 {
		t.Errorf("%v are asked, %d promises missed", nodes, p.nodes[0].Missed())
	}
	p.ask(0, 0)
	p.now += wantedFor + time.Millisecond
	if nodes, _ := p.nodes[0].Asked(); len(nodes) != 0 || p.nodes[0].Missed() != 1 {
		t.Errorf("%v are asked, %d promises missed", nodes, p.nodes[0].Missed())
	}
}

// TestSpeeds: the comparison of two clocks contains the true difference of their speeds.
func TestSpeeds(t *testing.T) {
	for _, speeds := range [][2]float64{{1, 1}, {1, 1.2}, {1.1, 1}} {
		p := newPair(speeds[0], speeds[1])
		p.nodes[0].SupportUntil(2, 0)
		for i := range 60 {
			sent := p.nodes[0].Now()
			p.now += time.Duration(i%7) * time.Millisecond
			answer := p.nodes[1].Answer(1, &wire.SupportRequest{Incarnation: 1})
			p.now += time.Duration(i%5) * time.Millisecond
			p.nodes[0].compare(2, sent, answer)
			p.now += Period
		}
		p.nodes[0].SupportUntil(2, 0)
		got := p.nodes[0].Speeds()
		want := speeds[1]/speeds[0] - 1
		if len(got) != 1 || got[0].Faster-got[0].Error > want || got[0].Faster+got[0].Error < want || got[0].Error > 0.01 {
			t.Errorf("with the speeds %v: %+v", speeds, got)
		}
		if len(got) == 1 && got[0].Beyond(MaxDrift/2) != (speeds[0] != speeds[1]) {
			t.Errorf("with the speeds %v, beyond half of the bound: %v", speeds, got[0].Beyond(MaxDrift/2))
		}
	}
}
