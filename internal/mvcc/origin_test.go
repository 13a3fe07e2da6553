package mvcc_test

import (
	"math/rand/v2"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
)

// TestOriginsAreNeverTooHigh: a notification's origin is at most that of any of its changes, for
// any order of changes, copies and clearings, and it does not stay old forever on a cell that
// changes all the time.
func TestOriginsAreNeverTooHigh(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := mvcctest.NewMemView()
		m.Columns[mvcc.ObservedColumn{Table: testTable, Column: "doc"}] = mvcc.ObservedWeak
		c := parseCell("a.doc")
		type change struct{ ts, origin mvcc.Timestamp }
		var pending []change
		now := mvcc.Timestamp(1 << 30)
		for range 40 {
			now += mvcc.Timestamp(r.IntN(30)) << mvcc.LogicalBits
			switch r.IntN(3) {
			case 0, 1:
				now++
				ch := change{ts: now, origin: now}
				if r.IntN(2) == 0 {
					ch.origin = now - mvcc.Timestamp(r.Int64N(1<<29))
				}
				// An intent is committed late, but not later than a run that clears it.
				if n, there, _ := m.Notification(c); there && r.IntN(4) == 0 {
					ch.ts = n.TS - 1
					ch.origin = min(ch.origin, ch.ts)
				}
				req := mvcc.NotifyRequest{TS: ch.ts, Cells: []mvcc.Cell{c}, Origin: ch.origin}
				_, list, err := mvcc.NotifyCells(m, req)
				if err != nil {
					t.Fatal(err)
				}
				m.Apply(list)
				pending = append(pending, ch)
			case 2:
				upTo := now - mvcc.Timestamp(r.Int64N(1<<24))
				_, list, err := mvcc.ClearNotify(m, mvcc.ClearNotifyRequest{Cell: c, UpTo: upTo})
				if err != nil {
					t.Fatal(err)
				}
				m.Apply(list)
				left := pending[:0]
				for _, ch := range pending {
					if ch.ts > upTo {
						left = append(left, ch)
					}
				}
				pending = left
			}
			n, there, _ := m.Notification(c)
			for _, ch := range pending {
				if !there || n.Origin() > ch.origin {
					t.Fatalf("ORIGIN-TOO-HIGH: seed %d: a change at %d goes back to %d, and its notification to %d: %+v",
						seed, ch.ts, ch.origin, n.Origin(), n)
				}
			}
		}
	}
}

// TestOriginsDoNotStick: a cell that changes during each of its runs drops an old origin after a
// few of them.
func TestOriginsDoNotStick(t *testing.T) {
	m := mvcctest.NewMemView()
	m.Columns[mvcc.ObservedColumn{Table: testTable, Column: "doc"}] = mvcc.ObservedWeak
	c := parseCell("a.doc")
	second := mvcc.TimestampAt(1000)
	notify := func(ts, origin mvcc.Timestamp) {
		_, list, err := mvcc.NotifyCells(m, mvcc.NotifyRequest{TS: ts, Cells: []mvcc.Cell{c}, Origin: origin})
		if err != nil {
			t.Fatal(err)
		}
		m.Apply(list)
	}
	notify(5*second, second)
	for run := mvcc.Timestamp(6); run < 9; run++ {
		start := run * second
		notify(start+second/4, 0) // during the run
		notify(start+second/2, 0)
		_, list, err := mvcc.ClearNotify(m, mvcc.ClearNotifyRequest{Cell: c, UpTo: start})
		if err != nil {
			t.Fatal(err)
		}
		m.Apply(list)
	}
	if n, _, _ := m.Notification(c); n.Origin() < 6*second {
		t.Errorf("after three runs the cell still goes back to %v: %+v", n.Origin().Millis(), n)
	}
}

// TestRunClearsNoOlderOrigin: a weak notification that is older than the run but arrived after the
// run's read is not cleared by it: the run's writes have the origin of other commits.
func TestRunClearsNoOlderOrigin(t *testing.T) {
	m := mvcctest.NewMemView()
	m.Columns[mvcc.ObservedColumn{Table: testTable, Column: "doc"}] = mvcc.ObservedWeak
	c := parseCell("a.doc")
	m.Apply([]mvcc.Mutation{{Group: mvcc.GroupNotify, Cell: c, Notify: &mvcc.Notify{TS: 20}}})
	_, list, err := mvcc.NotifyCells(m, mvcc.NotifyRequest{TS: 10, Cells: []mvcc.Cell{c}}) // late
	if err != nil {
		t.Fatal(err)
	}
	m.Apply(list)
	res, list, err := mvcc.ClearNotify(m, mvcc.ClearNotifyRequest{Cell: c, UpTo: 30, Origin: 20})
	if err != nil || len(list) > 0 || res.CommitTS != 20 {
		t.Errorf("ORIGIN-CLEARED: %+v, %d effects, %v", res, len(list), err)
	}
	// A later change does not replace the origin of the notification either.
	newer := mvcc.TimestampAt(1000)
	_, list, err = mvcc.NotifyCells(m, mvcc.NotifyRequest{TS: newer, Cells: []mvcc.Cell{c}})
	if err != nil {
		t.Fatal(err)
	}
	m.Apply(list)
	res, list, err = mvcc.ClearNotify(m, mvcc.ClearNotifyRequest{Cell: c, UpTo: 30, Origin: 20})
	if err != nil || len(list) > 0 || res.CommitTS != newer {
		t.Errorf("ORIGIN-CLEARED: %+v, %d effects, %v", res, len(list), err)
	}
	res, list, err = mvcc.ClearNotify(m, mvcc.ClearNotifyRequest{
		Cell: c, UpTo: newer + 1, Origin: 10,
	})
	if err != nil || len(list) != 1 || res.CommitTS != 0 {
		t.Errorf("the next run's: %+v, %d effects, %v", res, len(list), err)
	}
}

// TestOriginAtTheEdge: a run removes the changes of the first half only if it has read the last of
// them.
func TestOriginAtTheEdge(t *testing.T) {
	second := mvcc.TimestampAt(1000)
	n := mvcc.Notify{TS: 3 * second, Origins: mvcc.Origins{First: 1, Until: second, Later: 2 * second}}
	for upTo, want := range map[mvcc.Timestamp]mvcc.Timestamp{
		second - 1: 1, second: 2 * second, second + 1: 2 * second,
	} {
		m, c := mvcctest.NewMemView(), parseCell("a.doc")
		m.Apply([]mvcc.Mutation{{Group: mvcc.GroupNotify, Cell: c, Notify: &n}})
		_, list, err := mvcc.ClearNotify(m, mvcc.ClearNotifyRequest{Cell: c, UpTo: upTo})
		if err != nil {
			t.Fatal(err)
		}
		m.Apply(list)
		if got, _, _ := m.Notification(c); got.Origin() != want {
			t.Errorf("ORIGIN-TOO-HIGH: after a run at %d it goes back to %d, want %d", upTo, got.Origin(),
				want)
		}
	}
}
