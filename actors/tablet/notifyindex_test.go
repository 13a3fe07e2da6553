package tablet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

var observedColumns = []*pb.ObserverInfo{
	{Name: "strong", Table: 16, Column: []byte("c")},
	{Name: "weak", Table: 16, Column: []byte("w"), Weak: true},
}

func observe(r *rig, tablet uint64) {
	r.tb.Helper()
	r.do(tablet, &pb.TabletRequest{Op: &pb.TabletRequest_SetCatalogue{SetCatalogue: &pb.SetCatalogueRequest{
		Catalogue: &pb.Catalogue{Version: 1, Observers: observedColumns},
	}}})
}

func weakCell(row string) *pb.Cell {
	return &pb.Cell{Table: 16, Row: []byte(row), Column: []byte("w")}
}

// waiting is the store's content for an observed column: notifications and intents.
type waiting struct {
	pending, parked, intents int
	oldest                   mvcc.Timestamp // of those that are pending
	entries                  []string
}

func (w *waiting) count(snap *store.Snap, o *pb.ObserverInfo, span mvcc.Span) error {
	for n, err := range snap.Notifies(wire.NotifyColumn(o), span.Start, false) {
		if err != nil {
			return err
		}
		if !span.Contains(n.Cell.Row) {
			break
		}
		w.entries = append(w.entries, fmt.Sprint("N ", n.Cell.Row, n.Notify.TS, n.Notify.ParkedTS))
		if n.Notify.ParkedTS != 0 {
			w.parked++
			continue
		}
		if w.pending++; w.oldest == 0 || n.Notify.TS < w.oldest {
			w.oldest = n.Notify.TS
		}
	}
	for i, err := range snap.Intents(span.Table, string(o.Column), span.Start) {
		if err != nil {
			return err
		}
		if !span.Contains(i.Cell.Row) {
			break
		}
		w.intents++
		w.entries = append(w.entries, fmt.Sprint("I ", i.Cell.Row, i.StartTS))
	}
	return nil
}

// checkIndex compares the index with the disk: counts, and walks.
func checkIndex(r *rig, tablet uint64, when string) (entries int) {
	r.tb.Helper()
	checkIdleHints(r, tablet, when, false)
	got := r.do(tablet, &pb.TabletRequest{
		Op: &pb.TabletRequest_Pending{Pending: &pb.PendingRequest{}},
	}).GetPending()
	d := r.do(tablet, &pb.TabletRequest{
		Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}},
	}).GetStatus().Tablet
	span := mvcc.Span{
		Table: 16, Start: string(d.StartRow), End: string(d.EndRow), HasEnd: !d.EndUnbounded,
	}
	snap := r.store.Snap()
	defer snap.Close()
	probe := &pb.WalkRequest{Group: uint32(mvcc.GroupNotify), Table: 16}
	var dirty []string
	for i, o := range observedColumns {
		var want waiting
		if err := want.count(snap, o, span); err != nil {
			r.tb.Fatal(err)
		}
		walked := want.entries
		entries += len(walked)
		probe.Columns = append(probe.Columns, &pb.Cell{Column: o.Column})
		if slices.ContainsFunc(walked, func(e string) bool { return strings.HasPrefix(e, "N ") }) {
			dirty = append(dirty, string(o.Column))
		}
		expected := &pb.ObserverPending{
			Name: o.Name, Notifications: uint64(want.pending), Parked: uint64(want.parked),
			Intents: uint64(want.intents), OldestTs: uint64(want.oldest),
		}
		// The oldest is exact until it is removed before others of its second.
		if of := got.Observers[i]; mvcc.Timestamp(
			of.OldestTs).Millis()/1000 == want.oldest.Millis()/1000 &&
			of.OldestTs <= expected.OldestTs {
			of.OldestTs = expected.OldestTs
		}
		if !proto.Equal(got.Observers[i], expected) {
			r.tb.Fatalf("%s: tablet %d counts %v, the store has %v", when, tablet, got.Observers[i],
				expected)
		}
		checkQueue(r, tablet, when, o.Column, want.pending)
		var through []string
		for _, g := range []mvcc.Group{mvcc.GroupNotify, mvcc.GroupIntent} {
			w := r.do(tablet, &pb.TabletRequest{
				Op: &pb.TabletRequest_Walk{
					Walk: &pb.WalkRequest{Group: uint32(g), Table: 16, Column: o.Column},
				},
			}).GetWalk()
			if g == mvcc.GroupNotify {
				checkRows(r, tablet, when, o.Column, w.Entries)
			}
			for _, e := range w.Entries {
				if g == mvcc.GroupNotify {
					through = append(through,
						fmt.Sprint("N ", string(e.Cell.Row), e.Notify.Ts, e.Notify.ParkedTs))
				} else {
					through = append(through, fmt.Sprint("I ", string(e.Cell.Row), e.Ts))
				}
			}
		}
		if fmt.Sprint(through) != fmt.Sprint(walked) {
			r.tb.Fatalf("%s: %s: a walk gave\n%v, the store has\n%v", when, o.Name, through, walked)
		}
	}
	probed := r.do(tablet, &pb.TabletRequest{Op: &pb.TabletRequest_Walk{Walk: probe}}).GetWalk()
	var found []string
	for _, c := range probed.Dirty {
		found = append(found, string(c.Column))
	}
	if !probed.Probed || !slices.Equal(found, dirty) {
		r.tb.Fatalf("%s: a probe found entries in the columns %q, the store in %q", when, found, dirty)
	}
	checkIdleHints(r, tablet, when, true)
	return entries
}

// checkRows looks up the rows of the entries, and as many rows without an entry.
func checkRows(r *rig, tablet uint64, when string, column []byte, entries []*pb.WalkEntry) {
	r.tb.Helper()
	if len(entries) == 0 {
		return
	}
	walk := &pb.WalkRequest{
		Group: uint32(mvcc.GroupNotify), Table: 16, Column: column, FromRow: entries[0].Cell.Row,
	}
	for _, e := range entries {
		walk.Rows = append(walk.Rows, e.Cell.Row, append(slices.Clone(e.Cell.Row), 0))
	}
	got := r.do(tablet, &pb.TabletRequest{Op: &pb.TabletRequest_Walk{Walk: walk}}).GetWalk()
	same := slices.EqualFunc(got.Entries, entries, func(a, b *pb.WalkEntry) bool { return proto.Equal(a, b) })
	if int(got.Rows) != len(walk.Rows) || !same {
		r.tb.Fatalf("%s: %d of %d rows were looked up, and have the entries\n%v\nnot\n%v", when, got.Rows,
			len(walk.Rows), got.Entries, entries)
	}
}

// checkQueue compares the walk in waiting order, where known, with the number of pending entries:
// each once, in pages.
func checkQueue(r *rig, tablet uint64, when string, column []byte, want int) {
	r.tb.Helper()
	rows := map[string]bool{}
	for place := uint64(0); ; {
		w := r.do(tablet, &pb.TabletRequest{Op: &pb.TabletRequest_Walk{Walk: &pb.WalkRequest{
			Group: uint32(mvcc.GroupNotify), Table: 16, Column: column, Limit: 2, Oldest: true,
			AfterPlace: place,
		}}}).GetWalk()
		if !w.Ordered {
			return // there are, or were, more entries than the queue can hold
		}
		for _, e := range w.Entries {
			if rows[string(e.Cell.Row)] || e.Notify.ParkedTs != 0 {
				r.tb.Fatalf("%s: tablet %d hands out %v", when, tablet, e)
			}
			rows[string(e.Cell.Row)] = true
		}
		if w.Done {
			break
		}
		place = w.Place
	}
	if r.indexed == 0 && len(rows) != want {
		r.tb.Fatalf("%s: tablet %d hands out %d notifications, %d wait", when, tablet, len(rows),
			want)
	}
}

// notifyWork makes random changes to the notify and intent groups: all ways in which an entry is
// added and removed.
type notifyWork struct {
	r    *rig
	rng  *rand.Rand
	open []mvcc.Timestamp // transactions with an intent prewritten
}

func (w *notifyWork) row() string { return fmt.Sprintf("r%02d", w.rng.IntN(24)) }

// base spaces transactions a few seconds apart, so that there are several ages.
func (w *notifyWork) base() mvcc.Timestamp {
	w.r.now.Add(uint64(mvcc.TimestampAt(int64(w.rng.IntN(1500)))))
	return w.r.take(1)
}

func (w *notifyWork) step(tablet func(row string) uint64) {
	row := w.row()
	at := w.base()
	send := func(req *pb.TabletRequest) { w.r.do(tablet(row), req) }
	switch w.rng.IntN(6) {
	case 0:
		send(&pb.TabletRequest{
			Op: &pb.TabletRequest_Notify{
				Notify: &pb.NotifyRequest{
					Ts: uint64(at), Cells: []*pb.Cell{weakCell(row), weakCell(row)},
				},
			},
		})
	case 1:
		send(onePhaseOf(at, put(row, "v")))
	case 2:
		cell := []*pb.Cell{weakCell(row), cellOf(row)}[w.rng.IntN(2)]
		send(&pb.TabletRequest{
			Op: &pb.TabletRequest_ClearNotify{
				ClearNotify: &pb.ClearNotifyRequest{Cell: cell, UpTo: uint64(at)},
			},
		})
	case 3:
		w.fail(send, row, at)
	case 4:
		row = "r05" // all intents are in one row, so that a split leaves transactions in one tablet
		send(&pb.TabletRequest{Op: &pb.TabletRequest_Prewrite{Prewrite: &pb.PrewriteRequest{
			StartTs: uint64(at), Primary: cellOf("r00"), Expiry: uint64(mvcc.MaxTimestamp - 1),
			Worker: &pb.Worker{}, Intents: []*pb.Cell{weakCell(row)},
		}}})
		w.open = append(w.open, at)
	case 5:
		w.end(send)
	}
}

// fail counts a failure of the row's first entry, and sometimes parks it.
func (w *notifyWork) fail(send func(*pb.TabletRequest), row string, at mvcc.Timestamp) {
	snap := w.r.store.Snap()
	n, there, err := snap.Notification(mvcc.Cell{Table: 16, Row: row, Column: "w"})
	snap.Close()
	if err != nil || !there {
		return
	}
	f := &pb.FailNotifyRequest{
		Cell: weakCell(row), Ts: uint64(n.TS), Attempts: n.Attempts + 1, Error: "failed",
	}
	if w.rng.IntN(2) == 0 {
		f.ParkedTs = uint64(at)
	}
	send(&pb.TabletRequest{Op: &pb.TabletRequest_FailNotify{FailNotify: f}})
}

// end commits or rolls back one of the open transactions.
func (w *notifyWork) end(send func(*pb.TabletRequest)) {
	if len(w.open) == 0 {
		return
	}
	start := w.open[0]
	w.open = w.open[1:]
	var commit mvcc.Timestamp
	if w.rng.IntN(2) == 0 {
		commit = w.r.take(1)
	}
	w.r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_ResolveLock{ResolveLock: &pb.ResolveLockRequest{
		StartTs: uint64(start), CommitTs: uint64(commit), Intents: []*pb.Cell{weakCell("r05")},
	}}})
}

// TestNotifyIndexIsTheStore: after any changes the index counts and lists the entries on disk, with
// room for all entries and with so little room that it must walk the disk, also after a split and
// after the replica was reopened.
func TestNotifyIndexIsTheStore(t *testing.T) {
	for _, indexed := range []int{0, 3} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("indexed=%d/seed=%d", indexed, seed), func(t *testing.T) {
				r := newRig(t, store.Options{InMemory: true})
				r.now.Store(uint64(mvcc.TimestampAt(1_000_000)))
				reopen(t, r, 2, indexed)
				observe(r, 2)
				w := &notifyWork{r: r, rng: rand.New(rand.NewPCG(seed, 7))}
				left := func(string) uint64 { return 2 }
				most := 0
				for i := range 150 {
					w.step(left)
					most = max(most, checkIndex(r, 2, fmt.Sprintf("step %d", i)))
				}
				if most < 10 {
					t.Fatalf("never more than %d entries: the workload tests nothing", most)
				}
				reopen(t, r, 2, indexed)
				checkIndex(r, 2, "opened anew")
				r.do(2, &pb.TabletRequest{
					Op: &pb.TabletRequest_Split{
						Split: &pb.SplitRequest{Table: 16, Row: []byte("r12"), NewTabletId: 3},
					},
				})
				r.awaitLeader()
				side := func(row string) uint64 {
					if row < "r12" {
						return 2
					}
					return 3
				}
				for i := range 50 {
					checkIndex(r, 2, fmt.Sprintf("after the split, step %d", i))
					checkIndex(r, 3, fmt.Sprintf("after the split, step %d", i))
					w.step(side)
				}
			})
		}
	}
}

// reopen reopens a replica from its store with an index of this capacity.
func reopen(t *testing.T, r *rig, tablet uint64, indexed int) {
	t.Helper()
	if err := r.system.Root.StopFuture(r.port(tablet).PID()).Wait(); err != nil {
		t.Fatal(err)
	}
	if err := r.logs.Barrier(); err != nil {
		t.Fatal(err)
	}
	r.indexed = indexed
	r.spawn(tablet)
	r.awaitLeader()
}

// TestUnobservedColumnsAreNotIndexed: a client may query any column; only observed ones take
// memory.
func TestUnobservedColumnsAreNotIndexed(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	inside := r.restart(2)
	observe(r, 2)
	r.do(2, prewriteOf(r.take(1), "a", "v"))
	for i := range 20 {
		column := fmt.Sprint(i)
		for _, g := range []mvcc.Group{mvcc.GroupNotify, mvcc.GroupIntent} {
			r.do(2, &pb.TabletRequest{
				Op: &pb.TabletRequest_Walk{
					Walk: &pb.WalkRequest{Group: uint32(g), Table: 16, Column: []byte(column)},
				},
			})
		}
		r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_ClearNotify{ClearNotify: &pb.ClearNotifyRequest{
			Cell: &pb.Cell{Table: 16, Row: []byte("a"), Column: []byte(column)},
			UpTo: uint64(r.take(1)),
		}}})
	}
	checkIndex(r, 2, "after walks of other columns")
	if n := inside.memory.Columns(); n == 0 || n > 2 {
		t.Errorf("%d columns are in memory", n)
	}
}
