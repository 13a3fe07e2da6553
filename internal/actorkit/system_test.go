package actorkit

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/leaktest"
)

// panicking panics for negative requests and answers the others with the sum so far.
type panicking struct{ sum int }

func (p *panicking) Receive(c actor.Context) {
	if m, ok := c.Message().(*call); ok {
		if m.Req < 0 {
			panic("what an actor says")
		}
		p.sum += m.Req
		m.Reply(p.sum)
	}
}

// TestActorsOutlivePanics: an actor that panics loses only the message, however often, and each
// panic is logged with its location.
func TestActorsOutlivePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaktest.Settle(t)
		logged := &strings.Builder{}
		system := NewSystem(slog.New(slog.NewTextHandler(logged, nil)))
		defer func() {
			system.Shutdown()
			synctest.Wait()
		}()
		one := &panicking{}
		pid := system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return one }, Mailbox()))
		port := NewPort[int, int](system, pid, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		const panics = 50
		for i := range panics {
			_ = port.Tell(-1, time.Time{}, false, func(Result[int]) {})
			if sum, err := port.Ask(ctx, 1, false); err != nil || sum != i+1 {
				t.Errorf("after %d panics: %d, %v", i+1, sum, err)
				break
			}
		}
		for _, text := range []string{"what an actor says", "panicking).Receive"} {
			if n := strings.Count(logged.String(), text); n < panics {
				t.Errorf("%q was logged %d times for %d panics", text, n, panics)
			}
		}
		_ = system.Root.StopFuture(pid).Wait()
	})
}
