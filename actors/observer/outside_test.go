package observer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

// service is an external service: it admits one call per gap, and none during an outage. It pays
// for the rows of admitted calls.
type service struct {
	gap  time.Duration
	took time.Duration // duration of a call
	says func(next time.Duration) time.Duration

	mu    sync.Mutex
	began time.Time
	next  time.Time
	down  time.Time // end of the outage
	calls []string  // time, rows, and ! if refused
	paid  map[string]int
	last  time.Time // time of the last admitted call
}

func newService(gap time.Duration) *service {
	return &service{
		gap: gap, took: 10 * time.Millisecond, began: time.Now(), paid: map[string]int{},
		says: func(next time.Duration) time.Duration { return next },
	}
}

var errBusy = errors.New("429 too many requests")

// call is the function of a batched observer.
func (s *service) call(_ context.Context, _ *percolator.Tx, changes []percolator.Notification) error {
	defer func() { <-time.After(s.took) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	text := fmt.Sprintf("%v %d", now.Sub(s.began), len(changes))
	opens := s.next
	if s.down.After(opens) {
		opens = s.down
	}
	if opens.After(now) {
		s.calls = append(s.calls, text+"!")
		return fmt.Errorf("embed: %w", percolator.RetryAfter(errBusy, s.says(opens.Sub(now))))
	}
	s.next, s.last = now.Add(s.gap), now
	s.calls = append(s.calls, text)
	for _, n := range changes {
		s.paid[n.Row]++
	}
	return nil
}

func (s *service) refused() (n int) {
	for _, c := range s.calls {
		if strings.HasSuffix(c, "!") {
			n++
		}
	}
	return n
}

// outsideOf starts a dispatcher in a bubble whose observer calls the service for up to batch rows.
func outsideOf(t *testing.T, s *service, batch int, tune func(*Config)) (*Dispatcher, *fakeClient) {
	t.Helper()
	var client *fakeClient
	t.Cleanup(func() { s.after(client, 2*time.Second) })
	d, made := probe(t, nil, func(c *Config) {
		spec := &c.Observers[0].Spec
		spec.Func, spec.BatchFunc, spec.Batch, spec.Concurrency = nil, s.call, batch, 64
		if tune != nil {
			tune(c)
		}
	})
	client = made
	return d, client
}

// changed submits n changed rows at once.
func changed(t *testing.T, d *Dispatcher, client *fakeClient, n int) {
	t.Helper()
	items := make([]notify.Dirty, n)
	for i := range items {
		cell := cellOf(fmt.Sprintf("a%04d", i))
		items[i] = notify.Dirty{Cell: cell, Notify: client.change(cell), Held: true}
	}
	got, err := d.Submit(t.Context(), items)
	if err != nil || slices.ContainsFunc(got, func(a notify.Admission) bool { return a != notify.Accepted }) {
		t.Fatal(got, err)
	}
}

// after advances virtual time. The locks order the caller's reads before the runs in it.
func (s *service) after(client *fakeClient, d time.Duration) {
	for _, mu := range []*sync.Mutex{&s.mu, &client.mu} {
		func() {
			mu.Lock()
			defer mu.Unlock()
		}()
	}
	after(d)
}

// TestRateOfAService: a service that admits 20 calls per second receives few more, each as large as
// possible, and pays for each row once. See BenchmarkOutsideRate of package percolatortest for a
// whole node.
func TestRateOfAService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(50 * time.Millisecond)
		d, client := outsideOf(t, s, 32, nil)
		changed(t, d, client, 640)
		s.after(client, 10*time.Second)
		took := s.last.Sub(s.began)
		t.Logf("%v, %d calls, %d refused", took, len(s.calls), s.refused())
		if took > 1200*time.Millisecond || len(s.calls) > 30 || len(s.paid) != 640 {
			t.Errorf("%v, %d rows, calls %q", took, len(s.paid), s.calls)
		}
		for row, times := range s.paid {
			if times != 1 {
				t.Errorf("%s was paid for %d times", row, times)
			}
		}
		st := d.Stats()[0]
		if st.Failures+st.Divided+st.Unavailable != 0 || st.Refused != uint64(32*s.refused()) {
			t.Errorf("%+v", st)
		}
		if st.Wait != (Outside{}) {
			t.Errorf("it still waits: %+v", st.Wait)
		}
	})
}

// TestServiceThatIsDown: during an outage of 5 min one run tries after each wait, batches stay
// whole, nothing counts as failed, and all rows are done within a second after the end.
func TestServiceThatIsDown(t *testing.T) {
	for name, says := range map[string]time.Duration{"says 900ms": 900 * time.Millisecond, "says nothing": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(0)
				s.says = func(time.Duration) time.Duration { return says }
				d, client := outsideOf(t, s, 32, nil)
				changed(t, d, client, 64)
				s.after(client, time.Second)
				s.down = s.began.Add(5 * time.Minute)
				changed(t, d, client, 640)
				s.after(client, 2*time.Minute)
				now := time.Now()
				st := d.Stats()[0]
				if st.Wait.Since != s.began.Add(time.Second+s.took) || !st.Wait.Until.After(now) ||
					st.Wait.Until.Sub(now) > time.Second || !strings.Contains(st.Wait.Error, errBusy.Error()) {
					t.Errorf("the wait is %+v", st.Wait)
				}
				if n := s.refused(); n > 300 {
					t.Errorf("%d calls in two minutes", n)
				}
				s.after(client, 3*time.Minute+time.Second)
				if len(s.paid) != 640 || s.last.Sub(s.down) > time.Second {
					t.Errorf("%d rows, the last after %v", len(s.paid), s.last.Sub(s.down))
				}
				for _, c := range s.calls {
					if !strings.Contains(c, " 32") {
						t.Errorf("DIVIDED: a call of %q", c)
					}
				}
				if st := d.Stats()[0]; st.Failures+st.Parked+st.Divided+st.Unavailable != 0 || len(client.failed) != 0 {
					t.Errorf("%+v, %v", st, client.failed)
				}
			})
		})
	}
}

// TestFewTryAfterAWait: after a wait for a service one run tries; if the service admits it, two
// run, and then four.
func TestFewTryAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(0)
		s.down = time.Now().Add(10 * time.Second)
		d, client := outsideOf(t, s, 1, nil)
		changed(t, d, client, 100)
		s.after(client, 20*time.Second)
		want := []string{
			"0s 1!", "0s 1!", "0s 1!", "0s 1!", "10.01s 1", "10.02s 1", "10.02s 1",
			"10.03s 1", "10.03s 1", "10.03s 1", "10.03s 1",
		}
		if !slices.Equal(s.calls[:len(want)], want) || len(s.calls) != 104 {
			t.Errorf("%d calls, %q", len(s.calls), s.calls[:len(want)])
		}
		if st := d.Stats()[0]; st.Failures != 0 || len(client.failed) != 0 {
			t.Errorf("COUNTED: %d failures, %d are recorded", st.Failures, len(client.failed))
		}
	})
}

// TestWaitsAreBounded: a wait is at most an hour, and pausing and resuming ends it.
func TestWaitsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(0)
		s.down = time.Now().Add(1000 * time.Hour)
		d, client := outsideOf(t, s, 1, nil)
		changed(t, d, client, 1)
		s.after(client, time.Minute)
		if left := time.Until(d.Stats()[0].Wait.Until); left != 59*time.Minute+s.took {
			t.Errorf("%v are left", left)
		}
		s.after(client, time.Hour)
		if len(s.calls) != 2 {
			t.Errorf("calls %q", s.calls)
		}
		s.down = time.Time{}
		for _, paused := range []bool{true, false} {
			err := d.Control(t.Context(), []*pb.ObserverInfo{{Name: "o", Paused: paused}})
			if err != nil {
				t.Fatal(err)
			}
		}
		changed(t, d, client, 1) // as a scan resubmits it
		s.after(client, time.Second)
		if len(s.paid) != 1 || d.Stats()[0].Wait != (Outside{}) {
			t.Errorf("calls %q, %+v", s.calls, d.Stats()[0].Wait)
		}
	})
}

// TestRefusedElsewhere: a node that receives another's refusal makes no call during the wait and
// lets the refused node try first. It does not announce the refusal itself.
func TestRefusedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, told := newService(0), 0
		d, client := outsideOf(t, s, 10, func(c *Config) {
			c.Refused = func(string, time.Duration) { told++ }
		})
		d.Refused("o", 10*time.Second)
		d.Refused("another", time.Hour)
		changed(t, d, client, 100)
		s.after(client, 10*time.Second)
		if st := d.Stats()[0]; len(s.calls) != 0 || st.Wait.Since != s.began || st.Queued != 100 {
			t.Errorf("calls %q, %+v", s.calls, st.Wait)
		}
		s.after(client, maxStagger+time.Second)
		if len(s.paid) != 100 || told != 0 {
			t.Errorf("calls %q, notified %d times", s.calls, told)
		}
	})
}

// TestRefusalIsAnnounced: the first refusal of a wait is announced, not that of each run.
func TestRefusalIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, told := newService(0), []time.Duration(nil)
		s.down = time.Now().Add(3 * time.Second)
		d, client := outsideOf(t, s, 1, func(c *Config) {
			c.Refused = func(name string, d time.Duration) {
				if told = append(told, d); name != "o" {
					t.Errorf("observer %q", name)
				}
			}
		})
		s.says = func(next time.Duration) time.Duration { return min(next, 2*time.Second) }
		changed(t, d, client, 100)
		s.after(client, 10*time.Second)
		want := []time.Duration{2 * time.Second, time.Second - s.took}
		if !slices.Equal(told, want) || len(s.paid) != 100 {
			t.Errorf("%v were announced, want %v; calls %q", told, want, s.calls[:10])
		}
		// Too short to be announced in time.
		told, s.down = nil, time.Now().Add(8*time.Millisecond)
		changed(t, d, client, 1)
		s.after(client, time.Second)
		if len(told) != 0 {
			t.Errorf("%v were announced", told)
		}
	})
}

// TestRefusalAfterTheDeadline: a function that returns a refusal after its deadline has not failed.
func TestRefusalAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(0)
		s.took, s.down = 61*time.Second, time.Now().Add(time.Hour/2) // the deadline is 1 min
		d, client := outsideOf(t, s, 1, nil)
		changed(t, d, client, 1)
		s.after(client, 5*time.Minute)
		st := d.Stats()[0]
		if st.Failures != 0 || st.Refused != 1 || len(client.failed) != 0 || st.Wait.Since.IsZero() {
			t.Errorf("%+v, %v", st, client.failed)
		}
	})
}

// TestRefusedChangesOfABatch: the changes that a PartialError does not name commit, and the
// refused ones wait.
func TestRefusedChangesOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, sizes := time.Now(), []string(nil)
		s := newService(0)
		d, client := outsideOf(t, s, 10, func(c *Config) {
			c.Observers[0].Spec.BatchFunc = func(_ context.Context, _ *percolator.Tx,
				changes []percolator.Notification) error {
				sizes = append(sizes, fmt.Sprint(time.Since(began), " ", len(changes)))
				failed := map[string]error{}
				if len(changes) == 10 {
					for _, n := range changes[4:] {
						failed[n.Row] = percolator.RetryAfter(errBusy, time.Minute)
					}
				}
				return &percolator.PartialError{Failed: failed}
			}
		})
		changed(t, d, client, 10)
		s.after(client, time.Hour)
		if want := []string{"0s 10", "1m0s 6"}; !slices.Equal(sizes, want) {
			t.Errorf("runs %q, want %q", sizes, want)
		}
		if st := d.Stats()[0]; st.Failures != 0 || st.Commits != 10 || st.Refused != 6 || st.Divided != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestUnavailableShrinksAndGrows: when the function returns ErrUnavailable, batches shrink; they
// grow again as runs commit.
func TestUnavailableShrinksAndGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, sizes := time.Now(), []int(nil)
		d, client := outsideOf(t, newService(0), 32, func(c *Config) {
			c.Observers[0].Spec.Concurrency = 1
			c.Observers[0].Spec.BatchFunc = func(_ context.Context, _ *percolator.Tx,
				changes []percolator.Notification) error {
				sizes = append(sizes, len(changes))
				<-time.After(20 * time.Millisecond) // the next ones are batched
				if time.Since(began) < 2*time.Second {
					return fmt.Errorf("%w: not yet", percolator.ErrUnavailable)
				}
				return nil
			}
		})
		changed(t, d, client, 320)
		after(time.Minute)
		one := slices.Index(sizes, 1)
		if one < 0 || !slices.Equal(sizes[:one], []int{32, 16, 8, 4, 2}) {
			t.Errorf("batches of %v", sizes)
		}
		total := 0
		for i, n := range slices.Backward(sizes) {
			if total += n; total == 320 { // total committed
				if got := sizes[i:]; len(got) > 40 || slices.Max(got) != 32 {
					t.Errorf("the committed batches have %v", got)
				}
			}
		}
		if st := d.Stats()[0]; st.Failures != 0 || st.Divided != 0 || st.Commits != 320 {
			t.Errorf("%+v", st)
		}
	})
}

// TestRefusedSuspect: a run that was charged before it started, because its change may have killed
// a process, is not counted if an external service refuses it.
func TestRefusedSuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(0)
		s.down = time.Now().Add(10 * time.Second)
		d, client := outsideOf(t, s, 1, func(c *Config) {
			c.Suspect = func() mvcc.Timestamp { return mvcc.MaxTimestamp }
		})
		changed(t, d, client, 1)
		s.after(client, time.Second)
		if n := client.entries[cellOf("a0000")]; n.Attempts != 0 || len(client.failed) != 2 {
			t.Errorf("%+v, %v", n, client.failed)
		}
		s.after(client, time.Minute)
		if len(s.paid) != 1 {
			t.Errorf("calls %q", s.calls)
		}
	})
}
