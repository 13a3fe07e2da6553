package mvcc_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
)

// TestHistories runs random histories of concurrent transactions over two tablets against the
// sequential model. Messages are delayed, reordered, duplicated and dropped; coordinators crash;
// readers resolve abandoned locks; history is collected. SEED=n runs one history and prints it;
// HISTORIES=n sets the number.
func TestHistories(t *testing.T) {
	if text := os.Getenv("SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SEED: %v", err)
		}
		h := newHistory(seed, true)
		f := h.run()
		t.Log("\n" + h.transcript.String())
		if f != nil {
			t.Fatalf("assertion %s failed: %s (seed %d)", f.name, f.text, seed)
		}
		return
	}
	count := 10_000
	if testing.Short() {
		count = 5_000
	}
	if text := os.Getenv("HISTORIES"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatalf("HISTORIES: %v", err)
		}
	}
	runHistories(t, uint64(count))
}

// runHistories runs seeds 1 to count on all processors and stops at the first fault.
func runHistories(t *testing.T, count uint64) {
	var next atomic.Uint64
	var failed atomic.Bool
	var mu sync.Mutex
	var total tally
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			var own tally
			for !failed.Load() {
				seed := next.Add(1)
				if seed > count {
					break
				}
				h := newHistory(seed, false)
				f := h.run()
				own.add(h)
				if f != nil {
					failed.Store(true)
					t.Errorf("assertion %s failed: %s (seed %d; SEED=%d go test -run TestHistories -v ./internal/mvcc prints the history)",
						f.name, f.text, seed, seed)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			total.merge(own)
		})
	}
	workers.Wait()
	t.Logf("%d histories: %+v", count, total)
	if !failed.Load() {
		total.mustCover(t)
	}
}

// tally counts the situations in the histories, so that a test that has stopped covering one fails.
type tally struct {
	Committed, OnePhase, RolledBack, Undecided, Reads, Resolved, Runs, Collected, Conflicts, TooOld,
	Unknown, Async, Decided int
}

func (c *tally) add(h *history) {
	for _, x := range h.model.txns {
		switch {
		case x.commitTS != 0:
			c.Committed++
		case x.rolledBack:
			c.RolledBack++
		default:
			c.Undecided++
		}
	}
	c.Reads += len(h.model.reads)
	c.Runs += len(h.model.runs)
	c.OnePhase += h.seen.OnePhase
	c.Resolved += h.seen.Resolved
	c.Collected += h.seen.Collected
	c.Conflicts += h.seen.Conflicts
	c.TooOld += h.seen.TooOld
	c.Unknown += h.seen.Unknown
	c.Async += h.seen.Async
	c.Decided += h.seen.Decided
}

func (c *tally) merge(o tally) {
	c.Committed += o.Committed
	c.OnePhase += o.OnePhase
	c.RolledBack += o.RolledBack
	c.Undecided += o.Undecided
	c.Reads += o.Reads
	c.Resolved += o.Resolved
	c.Runs += o.Runs
	c.Collected += o.Collected
	c.Conflicts += o.Conflicts
	c.TooOld += o.TooOld
	c.Unknown += o.Unknown
	c.Async += o.Async
	c.Decided += o.Decided
}

// mustCover fails if any of the situations did not occur.
func (c *tally) mustCover(t *testing.T) {
	if slices.Contains([]int{c.Committed, c.OnePhase, c.RolledBack, c.Undecided, c.Reads, c.Resolved,
		c.Runs, c.Collected, c.Conflicts, c.TooOld, c.Unknown, c.Async, c.Decided}, 0) {
		t.Errorf("the histories do not cover everything: %+v", *c)
		return
	}
}

// history is one random history: two tablets, an oracle, coordinators, readers and observers, and
// the messages between them. It is deterministic in its seed.
type history struct {
	rng        *rand.Rand
	model      *model
	tablets    [2]*mvcctest.MemView
	now        mvcc.Timestamp // the last timestamp granted
	snapshot   mvcc.Timestamp // an open snapshot that collection must respect; 0: none
	passes     []*pass        // of collection, in progress
	garbage    [2][]mvcc.Garbage
	queue      []message
	late       []message // copies delivered after everything is decided
	txns       []*coordinator
	inflight   []*reservation
	fault      *fault
	seen       tally
	verbose    bool
	transcript strings.Builder
}

// message is one operation in flight to a tablet or, with run, an answer in flight back.
type message struct {
	tablet int
	op     any
	reply  func(mvcc.Result) // nil: nothing waits for it
	run    func()
}

func newHistory(seed uint64, verbose bool) *history {
	h := &history{
		rng: rand.New(rand.NewPCG(seed, 20101006)), model: newModel(), now: 1, verbose: verbose,
	}
	for i := range h.tablets {
		h.tablets[i] = mvcctest.NewMemView()
		h.tablets[i].Columns[mvcc.ObservedColumn{Table: testTable, Column: "body"}] = mvcc.ObservedStrong
		h.tablets[i].Columns[mvcc.ObservedColumn{Table: testTable, Column: "doc"}] = mvcc.ObservedWeak
		watch(h.tablets[i], "body", "observer", "second")
		watch(h.tablets[i], "doc", "poked", "also poked")
	}
	return h
}

// tabletOf returns the index of the tablet that holds the cell.
func tabletOf(c mvcc.Cell) int {
	if c.Row < "c" {
		return 0
	}
	return 1
}

// viewOf returns the state of the tablet that holds the cell.
func (h *history) viewOf(c mvcc.Cell) *mvcctest.MemView { return h.tablets[tabletOf(c)] }

// tick returns a new timestamp of the oracle.
func (h *history) tick() mvcc.Timestamp {
	h.now += 1 + mvcc.Timestamp(h.rng.IntN(2))
	return h.now
}

// chance is true with this probability.
func (h *history) chance(percent int) bool { return h.rng.IntN(100) < percent }

// logf adds to the transcript.
func (h *history) logf(format string, args ...any) {
	if h.verbose {
		fmt.Fprintf(&h.transcript, format+"\n", args...)
	}
}

// check keeps the first fault.
func (h *history) check(f *fault) {
	if h.fault == nil && f != nil {
		h.fault = f
		h.logf("FAULT %s: %s", f.name, f.text)
	}
}

// run plays the history and returns the failed assertion, if any.
func (h *history) run() *fault {
	for range 60 + h.rng.IntN(240) {
		h.step()
		if h.fault != nil {
			return h.fault
		}
	}
	h.logf("-- nothing new begins; what is under way arrives")
	h.drain(300)
	h.resolveAll()
	h.logf("-- late copies")
	h.queue = h.late
	h.late = nil
	for i := range h.queue {
		h.queue[i].reply = nil
	}
	h.drain(300)
	h.resolveAll()
	if h.fault == nil {
		h.check(h.model.finish(h.viewOf))
	}
	if h.fault == nil {
		h.collectEverything()
		h.check(h.model.checkVersions(h.viewOf))
	}
	return h.fault
}

// step executes one random action.
func (h *history) step() {
	switch n := h.rng.IntN(100); {
	case n < 12:
		if len(h.txns) < 20 {
			h.begin()
		}
	case n < 60:
		h.deliver()
	case n < 68:
		h.poke()
	case n < 80:
		h.read()
	case n < 86:
		h.observe()
	case n < 92:
		h.proceed()
	case n < 94:
		h.notify()
	case n < 96:
		h.crash()
	case n < 99:
		h.collect()
		for range h.rng.IntN(4) {
			h.collect()
		}
	case h.chance(70):
		h.hold()
	default:
		h.now += mvcc.Timestamp(h.rng.IntN(30))
	}
}
