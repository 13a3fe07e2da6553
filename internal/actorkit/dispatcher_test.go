package actorkit

import (
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// TestDispatcherKeeps: scheduled functions run, no turn waits for another's, and idle goroutines
// are kept up to the bound.
func TestDispatcherKeeps(t *testing.T) {
	const keep = 3
	d := NewDispatcher(keep)
	for range 100 {
		var began, ended sync.WaitGroup
		gate := make(chan struct{})
		for range 2 * keep {
			began.Add(1)
			ended.Add(1)
			d.Schedule(func() {
				began.Done()
				<-gate
				ended.Done()
			})
		}
		began.Wait() // all at once
		close(gate)
		ended.Wait()
	}
	for idle(d) < keep {
		runtime.Gosched()
	}
	if n := idle(d); n > keep {
		t.Errorf("%d idle goroutines, of at most %d", n, keep)
	}
	d.Close() // goleak checks that all have ended
	late := make(chan struct{})
	d.Schedule(func() { close(late) })
	<-late
	d.Close()
}

func idle(d *Dispatcher) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.idle)
}

// TestDispatcherRunsActors: an actor handles its messages one by one, in order, also when it is
// scheduled repeatedly.
func TestDispatcherRunsActors(t *testing.T) {
	d := NewDispatcher(2)
	system := NewSystem(slog.New(slog.DiscardHandler))
	pid := system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor {
		return &batching{batch: NewBatcher[*call](BatchConfig{})}
	}, Mailbox(), On(d)))
	p := NewPort[int, int](system, pid, 0)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				answered := make(chan Result[int], 1)
				if err := p.Tell(1, time.Time{}, false, func(r Result[int]) {
					answered <- r
				}); err != nil {
					t.Error(err)
				}
				if r := <-answered; r.Err != nil || r.Value < 1 {
					t.Errorf("got %v", r)
				}
			}
		})
	}
	wg.Wait()
	if err := system.Root.StopFuture(pid).Wait(); err != nil {
		t.Error(err)
	}
	system.Shutdown()
	d.Close()
}
