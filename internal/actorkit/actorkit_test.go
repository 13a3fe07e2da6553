package actorkit

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/leaktest"
)

func TestMain(m *testing.M) {
	// The actor library counts dead letters on a goroutine that ends a second later.
	leaktest.Main(m)
}

type call = Call[int, int]

// batching answers each call with the size of its batch, once the gate opens.
type batching struct {
	batch *Batcher[*call]
	gate  chan struct{} // nil: always open
}

func (b *batching) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *call:
		if b.batch.Add(c, m, m.Req) {
			b.answer()
		}
	case *Flush:
		if b.batch.Due(m) {
			b.answer()
		}
	}
}

func (b *batching) answer() {
	if b.gate != nil {
		<-b.gate
	}
	calls := b.batch.Take()
	for _, call := range calls {
		call.Reply(len(calls))
		call.Fail(errors.New("a second answer")) // must be dropped
	}
}

func start(t *testing.T, cfg BatchConfig,
	gate chan struct{}) (*actor.ActorSystem, *Port[int, int]) {
	t.Helper()
	system := NewSystem(slog.New(slog.DiscardHandler))
	pid := system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor {
		return &batching{batch: NewBatcher[*call](cfg), gate: gate}
	}))
	t.Cleanup(func() {
		_ = system.Root.StopFuture(pid).Wait()
		system.Shutdown()
	})
	return system, NewPort[int, int](system, pid, cfg.QueueLimit)
}

// tell sends n calls and returns the channel of their answers.
func tell(t *testing.T, p *Port[int, int], n int) chan Result[int] {
	t.Helper()
	answers := make(chan Result[int], n)
	for range n {
		if err := p.Tell(1, time.Time{}, false, func(r Result[int]) { answers <- r }); err != nil {
			t.Fatal(err)
		}
	}
	return answers
}

// TestCoalescing: messages that wait while the actor is busy form its next batch, and every call is
// answered once.
func TestCoalescing(t *testing.T) {
	gate := make(chan struct{})
	_, p := start(t, BatchConfig{}, gate)
	first := tell(t, p, 1)
	gate <- struct{}{} // the first batch has ended, or waits for its marker
	<-first
	answers := tell(t, p, 100)
	close(gate)
	largest := 0
	for range 100 {
		r := <-answers
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		largest = max(largest, r.Value)
	}
	if largest < 2 {
		t.Error("100 calls that waited together came one by one")
	}
	if p.Queued() != 0 {
		t.Errorf("%d calls are still counted", p.Queued())
	}
}

// TestBatchBounds: a batch ends at MaxMessages and at MaxBytes.
func TestBatchBounds(t *testing.T) {
	for _, cfg := range []BatchConfig{{MaxMessages: 3}, {MaxBytes: 3}} {
		gate := make(chan struct{})
		_, p := start(t, cfg, gate)
		answers := tell(t, p, 20)
		close(gate)
		for range 20 {
			if r := <-answers; r.Value > 3 {
				t.Errorf("%+v: a batch of %d", cfg, r.Value)
			}
		}
	}
}

// TestAdmission: beyond the limits a send fails at once, unless it must be delivered.
func TestAdmission(t *testing.T) {
	gate := make(chan struct{})
	_, p := start(t, BatchConfig{QueueLimit: 5}, gate)
	p.BoundBytes(1000, func(n int) int { return n })
	answers := tell(t, p, 5)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.Ask(ctx, 1, false); !errors.Is(err, ErrOverloaded) {
		t.Errorf("a sixth call: %v", err)
	}
	if _, err := p.Ask(ctx, 1, true); !errors.Is(err, context.Canceled) {
		t.Errorf("a sixth call that bypasses the limit: %v", err)
	}
	close(gate)
	for range 5 {
		<-answers
	}
	shut := make(chan struct{})
	_, large := start(t, BatchConfig{}, shut)
	defer close(shut)
	large.BoundBytes(10, func(n int) int { return n })
	if _, err := large.Ask(ctx, 100, false); !errors.Is(err, context.Canceled) {
		t.Errorf("a large call that is alone: %v", err)
	}
	if _, err := large.Ask(ctx, 1, false); !errors.Is(err, ErrOverloaded) {
		t.Errorf("a call beside it: %v", err)
	}
}

// TestStoppedActorAnswers: a call to a stopped actor does not block its caller.
func TestStoppedActorAnswers(t *testing.T) {
	system, p := start(t, BatchConfig{}, nil)
	if err := system.Root.StopFuture(p.PID()).Wait(); err != nil {
		t.Fatal(err)
	}
	var late atomic.Bool
	if err := p.Tell(1, time.Time{}, false, func(r Result[int]) {
		late.Store(errors.Is(r.Err, ErrStopped))
	}); err != nil || !late.Load() {
		t.Errorf("Tell: %v, answered %v", err, late.Load())
	}
	if _, err := p.Ask(context.Background(), 1, false); !errors.Is(err, ErrStopped) {
		t.Errorf("Ask: %v", err)
	}
}

// TestLinger: with a linger a batch waits for further messages.
func TestLinger(t *testing.T) {
	_, p := start(t, BatchConfig{Linger: 30 * time.Millisecond}, nil)
	answers := tell(t, p, 10)
	for range 10 {
		if r := <-answers; r.Value != 10 {
			t.Errorf("a batch of %d", r.Value)
		}
	}
}
