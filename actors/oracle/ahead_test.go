package oracle

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// inVirtualTime runs test with an oracle over a meta tablet with one voter.
func inVirtualTime(t *testing.T, test func(t *testing.T, o *Oracle)) {
	synctest.Test(t, func(t *testing.T) {
		leaktest.Settle(t)
		system := actorkit.NewSystem(slog.New(slog.DiscardHandler))
		o, err := Spawn(system, &fakeMeta{term: 1, alone: true}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		test(t, o)
		if err := o.Stop(); err != nil {
			t.Error(err)
		}
		system.Shutdown()
		synctest.Wait()
	})
}

// TestNobodyPushesTimeAhead: callers that repeatedly request the maximum number of timestamps do
// not push the oracle ahead of physical time, and another caller's wait is bounded. Catches
// BROKEN=unbounded_lead.
func TestNobodyPushesTimeAhead(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, o *Oracle) {
		check := func(last mvcc.Timestamp) {
			if at := time.UnixMilli(last.Millis()); time.Until(at) > maxLead {
				t.Errorf("UNBOUNDED-LEAD: a timestamp %v ahead of physical time", time.Until(at))
			}
		}
		var hostile sync.WaitGroup
		const callers, requests = 128, 256 // 2 s of timestamps
		began := time.Now()
		for range callers {
			hostile.Go(func() {
				for range requests {
					check(take(t, o, MaxCount) + MaxCount - 1)
					if t.Failed() {
						return
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { hostile.Wait(); close(done) }()
		for other := true; other; {
			asked := time.Now()
			check(take(t, o, 1))
			// each of the others requests 8 ms of timestamps
			if waited := time.Since(asked); waited > 20*time.Millisecond {
				t.Errorf("one timestamp after %v", waited)
			}
			select {
			case <-done:
				other = false
			case <-time.After(time.Millisecond):
			}
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("2 s of timestamps were granted in %v", took)
		}
	})
}

// TestTooManyWait: a request that cannot be served soon is refused at once, and a waiting caller
// can cancel.
func TestTooManyWait(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, o *Oracle) {
		take(t, o, 1)
		ctx, cancel := context.WithCancel(context.Background())
		outcomes := make(chan error)
		const callers = maxWaiting/MaxCount + 1000 // the lead is served at once
		for range callers {
			go func() {
				_, err := o.Port().Ask(ctx, &pb.TimestampsRequest{Count: MaxCount}, true)
				outcomes <- err
			}()
		}
		began := time.Now()
		refused := 0
		for range callers {
			switch err := <-outcomes; {
			case err == nil:
			case errors.Is(err, actorkit.ErrOverloaded):
				if refused++; time.Since(began) > 0 {
					t.Fatalf("refused after %v", time.Since(began))
				}
				cancel() // of the waiting requests
			case !errors.Is(err, context.Canceled):
				t.Fatal(err)
			}
		}
		if waited := time.Since(began); refused == 0 || waited > time.Second {
			t.Errorf("%d were refused, and the others waited %v", refused, waited)
		}
		cancel()
	})
}
