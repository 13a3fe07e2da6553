package export_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
	"github.com/percolator-go/percolator/recipes/export"
)

var text = percolator.Column{Table: "pages", Name: "text"}

// sink stores its input as the package requires.
type sink struct {
	mu      sync.Mutex
	values  map[string]string
	version map[string]percolator.Timestamp
	applied map[string][]percolator.Timestamp // versions applied, by row
	ignored int
	batches []int
	fail    func(changes []export.Change[string]) error // called before or after storing; may be nil
}

func newSink() *sink {
	return &sink{
		values: map[string]string{}, version: map[string]percolator.Timestamp{},
		applied: map[string][]percolator.Timestamp{},
	}
}

func (s *sink) apply(_ context.Context, changes []export.Change[string]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = append(s.batches, len(changes))
	for _, c := range changes {
		if c.Version <= s.version[c.Row] {
			s.ignored++
			continue
		}
		s.version[c.Row] = c.Version
		s.applied[c.Row] = append(s.applied[c.Row], c.Version)
		delete(s.values, c.Row)
		if !c.Gone {
			s.values[c.Row] = c.Value
		}
	}
	if s.fail != nil {
		return s.fail(changes)
	}
	return nil
}

func register(s *sink) func(*percolator.Registry) {
	return func(r *percolator.Registry) {
		export.Register(r, export.Config[string]{
			Name: "export", Column: text, Apply: s.apply,
			Read: func(_ context.Context, _ percolator.Reader, _ string, value []byte) (string, error) {
				return strings.ToUpper(string(value)), nil
			},
		}, percolator.Batch(16))
	}
}

// Texts are exported to a search engine.
func Example() {
	put := func(ctx context.Context, changes []export.Change[string]) error {
		// One request to the engine: each document with its Version as the engine's external
		// version, so that the engine refuses older ones.
		return nil
	}
	_ = func(r *percolator.Registry) {
		export.Register(r, export.Config[string]{
			Name: "search", Column: text, Apply: put,
			Read: func(_ context.Context, _ percolator.Reader, _ string, value []byte) (string, error) {
				return string(value), nil
			},
		})
	}
}

// edit changes rows at random and returns the number of changes.
func edit(t testing.TB, n *percolatortest.Node, seed uint64, times int) {
	random := rand.New(rand.NewPCG(seed, 1))
	for i := range times {
		row := fmt.Sprint("row", random.IntN(30))
		if random.IntN(5) == 0 {
			n.Delete(t, row, text)
		} else {
			n.Set(t, row, text, fmt.Sprint("value ", i))
		}
	}
}

// check compares the sink with the column, and checks the order.
func check(t *testing.T, n *percolatortest.Node, s *sink) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	have := n.Column(t, text)
	for row, value := range have {
		if s.values[row] != strings.ToUpper(value) {
			t.Errorf("%s: the sink has %q, want %q", row, s.values[row], value)
		}
	}
	if len(s.values) != len(have) {
		t.Errorf("the sink has %d rows, want %d", len(s.values), len(have))
	}
	for row, versions := range s.applied {
		if !slices.IsSorted(versions) {
			t.Errorf("%s: versions %v", row, versions)
		}
	}
}

// TestSinkFollows changes rows under every fault of a run, and with a sink that fails after it has
// stored the changes.
func TestSinkFollows(t *testing.T) {
	for _, kind := range []percolatortest.Kind{
		0, percolatortest.CommitConflicts, percolatortest.CommitReplyLost,
		percolatortest.CommitUnknown, percolatortest.CommitLost, percolatortest.ClearLost,
		percolatortest.RunFails, percolatortest.RunPanics,
	} {
		name := "sink fails"
		if kind != 0 {
			name = kind.String()
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSink()
			if kind == 0 {
				left := 5
				s.fail = func([]export.Change[string]) error {
					left--
					if left >= 0 {
						return errors.New("the answer was lost")
					}
					return nil
				}
			}
			n := percolatortest.Start(t, register(s), percolatortest.DuplicateHints())
			if kind != 0 {
				n.Inject(t, percolatortest.Fault{Kind: kind, Observer: "export", Times: 3})
			}
			edit(t, n, uint64(kind), 150)
			n.Crash(t)
			edit(t, n, uint64(kind)+100, 50)
			n.RunUntilIdle(t)
			check(t, n, s)
		})
	}
}

// TestPoisonIsAlone: a change that the sink always refuses is parked, and no other is.
func TestPoisonIsAlone(t *testing.T) {
	t.Parallel()
	s := newSink()
	s.fail = func(changes []export.Change[string]) error {
		for _, c := range changes {
			if c.Row == "row7" {
				return errors.New("too ugly")
			}
		}
		return nil
	}
	n := percolatortest.Start(t, register(s))
	n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
		for i := range 30 {
			tx.Set(fmt.Sprint("row", i), text, []byte("value"))
		}
		return nil
	})
	n.RunUntilIdle(t)
	check(t, n, s)
	parked := n.Parked(t, "export")
	if len(parked) != 1 || parked[0].Row != "row7" {
		t.Errorf("parked: %v", parked)
	}
}

// TestFill fills a new sink with a column, except for one row that has changed since, whose later
// version the sink already has.
func TestFill(t *testing.T) {
	t.Parallel()
	n := percolatortest.Start(t, func(r *percolator.Registry) {
		r.Table(percolator.TableSpec{Name: text.Table})
	})
	const rows = percolator.DefaultBatch + 30
	n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
		for i := range rows {
			tx.Set(fmt.Sprint("row", i), text, []byte("value"))
		}
		return nil
	})
	snapshot, err := n.DB().Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	moved := true
	s := newSink()
	s.version["row7"], s.values["row7"] = snapshot.StartTS()+1, "LATER"
	cfg := export.Config[string]{
		Name: "export", Column: text, Apply: s.apply,
		Read: func(_ context.Context, _ percolator.Reader, row string, value []byte) (string, error) {
			if moved && row == "row8" {
				return "", fmt.Errorf("%s has moved on: %w", row, percolator.ErrUnavailable)
			}
			return strings.ToUpper(string(value)), nil
		},
	}
	for _, want := range []bool{false, true} {
		complete, err := export.Fill(t.Context(), snapshot, cfg)
		if err != nil || complete != want {
			t.Fatalf("complete is %v, want %v; %v", complete, want, err)
		}
		if _, there := s.values["row8"]; there != want || s.values["row7"] != "LATER" ||
			s.values["row9"] != "VALUE" {
			t.Errorf("the sink has %v", s.values)
		}
		moved = false
	}
	if len(s.values) != rows || slices.Max(s.batches) > percolator.DefaultBatch {
		t.Errorf("the sink has %d rows, in batches of %v", len(s.values), s.batches)
	}
	cfg.Read = func(context.Context, percolator.Reader, string, []byte) (string, error) {
		return "", errors.New("too ugly")
	}
	if _, err := export.Fill(t.Context(), snapshot, cfg); err == nil {
		t.Error("rows that cannot be read were left out")
	}
}

// TestReadThatPanics: a change whose Read panics is parked, and no other is.
func TestReadThatPanics(t *testing.T) {
	t.Parallel()
	s := newSink()
	n := percolatortest.Start(t, func(r *percolator.Registry) {
		export.Register(r, export.Config[string]{
			Name: "export", Column: text, Apply: s.apply,
			Read: func(_ context.Context, _ percolator.Reader, row string, _ []byte) (string, error) {
				if row == "row2" {
					panic("too ugly")
				}
				return "VALUE", nil
			},
		})
	})
	n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
		for i := range 5 {
			tx.Set(fmt.Sprint("row", i), text, []byte("value"))
		}
		return nil
	})
	n.RunUntilIdle(t)
	parked := n.Parked(t, "export")
	if len(parked) != 1 || parked[0].Row != "row2" || len(s.values) != 4 {
		t.Errorf("parked: %v; the sink has %v", parked, s.values)
	}
}

// TestUnreadableRowIsAlone: the readable rows of a batch are sent to the sink in one call, and one
// that has changed since follows later, which does not count as a failure.
func TestUnreadableRowIsAlone(t *testing.T) {
	t.Parallel()
	s := newSink()
	began, opened := make(chan struct{}, 1), make(chan struct{})
	tries := 0
	n := percolatortest.Start(t, func(r *percolator.Registry) {
		export.Register(r, export.Config[string]{
			Name: "export", Column: text, Apply: s.apply,
			Read: func(_ context.Context, _ percolator.Reader, row string, _ []byte) (string, error) {
				switch row {
				case "gate": // the others wait and form one batch
					began <- struct{}{}
					<-opened
				case "row7":
					if tries++; tries <= 3 {
						return "", fmt.Errorf("%s has moved on: %w", row, percolator.ErrUnavailable)
					}
				}
				return "VALUE", nil
			},
		}, percolator.Concurrency(1))
	})
	n.Set(t, "gate", text, "value")
	<-began
	n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
		for i := range 20 {
			tx.Set(fmt.Sprint("row", i), text, []byte("value"))
		}
		return nil
	})
	for late := time.Now().Add(30 * time.Second); n.Node().Status().Observers[0].Queued < 20; {
		if runtime.Gosched(); time.Now().After(late) {
			t.Fatal("the changes are not queued")
		}
	}
	close(opened)
	n.RunUntilIdle(t)
	check(t, n, s)
	if want := []int{1, 19, 1}; !slices.Equal(s.batches, want) {
		t.Errorf("the sink had batches of %v, want %v", s.batches, want)
	}
	if st := n.Stats(t, "export"); st.Failures != 0 || st.Unavailable != 3 || tries != 4 {
		t.Errorf("%d tries; %+v", tries, st)
	}
}

// BenchmarkExport changes rows, 32 at a time, until the sink has all of them.
func BenchmarkExport(b *testing.B) {
	s := newSink()
	n := percolatortest.Start(b, register(s))
	b.SetParallelism(16)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n.Set(b, fmt.Sprint(rand.Uint64()), text, "value")
		}
	})
	n.RunUntilIdle(b)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "per/s")
	b.ReportMetric(float64(b.N)/float64(len(s.batches)), "changes/call")
}
