package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/cluster/clustertest"
	"github.com/percolator-go/percolator/test/workload"
)

func TestMain(m *testing.M) {
	cluster.Main(Register)
	os.Exit(m.Run())
}

// started is a run whose node has some documents and is idle.
func started(t *testing.T) (*soak, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	o := Options{
		Duration: 10 * time.Second, History: 4 * time.Second, Docs: 150, Tablets: 12,
		Patience: 5 * lockTTL,
	}
	cfg := cluster.Config{}
	o.Tune(&cfg)
	c := clustertest.Start(ctx, t, cfg)
	db, err := c.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(workload.Prepare(ctx, db, 1), workload.OpenBank(ctx, db)); err != nil {
		t.Fatal(err)
	}
	s, err := begin(ctx, Target{
		Cluster: c, DB: db, Rand: rand.New(rand.NewPCG(1, 0)), Log: t.Logf,
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.end(), db.Close()); err != nil {
			t.Error(err)
		}
		cancel()
	})
	if err := s.load(ctx, 20); err != nil {
		t.Fatal(err)
	}
	if err := s.settle(ctx); err != nil {
		t.Fatal(err)
	}
	return s, ctx
}

// mustNotice settles and expects a violation with the text.
func mustNotice(t *testing.T, err error, text string) {
	t.Helper()
	if !errors.Is(err, errViolation) || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, want a violation that reports %q", err, text)
	}
}

func change(t *testing.T, s *soak, fn func(tx *percolator.Tx)) {
	t.Helper()
	err := s.DB.Transact(t.Context(), func(_ context.Context, tx *percolator.Tx) error {
		fn(tx)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// account is the bank's column.
var account = percolator.Column{Table: workload.Table, Name: "v"}

// TestNoticesWrongResults: derived data is changed behind the observers.
func TestNoticesWrongResults(t *testing.T) {
	s, ctx := started(t)
	for name, c := range map[string]struct {
		do, undo func(tx *percolator.Tx)
		says     string
	}{
		"a count": {
			func(tx *percolator.Tx) { tx.Set("nonsense", total, []byte("1")) },
			func(tx *percolator.Tx) { tx.Delete("nonsense", total) }, `words count "nonsense"`,
		},
		"a link": {
			func(tx *percolator.Tx) { tx.Set("d1/d2", link, []byte("x")) },
			func(tx *percolator.Tx) { tx.Delete("d1/d2", link) }, `links link "d1/d2"`,
		},
		"half a transfer": {
			func(tx *percolator.Tx) { tx.Set("00/bank/0", account, []byte("99")) },
			func(tx *percolator.Tx) { tx.Set("00/bank/0", account, []byte("100")) }, "accounts hold",
		},
		"a mirror": {
			func(tx *percolator.Tx) { tx.Set("nonsense", copied, []byte("x")) },
			func(tx *percolator.Tx) { tx.Delete("nonsense", copied) }, `mirror text "nonsense"`,
		},
		"a document": { // and its derived data
			func(tx *percolator.Tx) {
				tx.Set("d99999", text, []byte("g0"))
				tx.Set(mirrorRow("d99999"), copied, []byte("g0"))
			},
			func(tx *percolator.Tx) {
				tx.Delete("d99999", text)
				tx.Delete(mirrorRow("d99999"), copied)
			}, "document d99999 is",
		},
	} {
		t.Run(name, func(t *testing.T) {
			change(t, s, c.do)
			mustNotice(t, s.settle(ctx), c.says)
			change(t, s, c.undo)
			if err := s.settle(ctx); err != nil {
				t.Errorf("when it is right again: %v", err)
			}
		})
	}
}

// TestNoticesALostWrite: an acknowledged document is missing.
func TestNoticesALostWrite(t *testing.T) {
	s, ctx := started(t)
	row := s.model.alive()[0]
	change(t, s, func(tx *percolator.Tx) {
		tx.Delete(row, text)
		tx.Delete(mirrorRow(row), copied)
	})
	mustNotice(t, s.settle(ctx), "document "+row+" is gone")
}

// TestNoticesWhatIsLeft: a lock of a client that never returns, and a notification that is never
// cleared.
func TestNoticesWhatIsLeft(t *testing.T) {
	s, ctx := started(t)
	c := handle.Client(s.DB)
	id, err := c.TableID(ctx, control)
	if err != nil {
		t.Fatal(err)
	}
	start, err := c.Timestamp(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cell := wire.CellPB(mvcc.Cell{Table: id, Row: "left", Column: "c"})
	never := uint64(mvcc.TimestampAt(start.Millis() + time.Hour.Milliseconds()))
	_, _, err = c.Send(ctx, wire.Position{Table: id, Row: "left"},
		&pb.TabletRequest{Op: &pb.TabletRequest_Prewrite{Prewrite: &pb.PrewriteRequest{
			StartTs: uint64(start), Primary: cell, Expiry: never,
			Writes: []*pb.CellWrite{{Cell: cell, Kind: pb.Kind_KIND_PUT}},
		}}})
	if err != nil {
		t.Fatal(err)
	}
	s.o.Patience = time.Second
	mustNotice(t, s.nothingLeft(ctx), `row "left"`)
}

// TestNoticesAParkedNotification: one parked without an intended failure.
func TestNoticesAParkedNotification(t *testing.T) {
	s, ctx := started(t)
	if err := s.refuse(ctx, "yes"); err != nil {
		t.Fatal(err)
	}
	row := s.model.alive()[0]
	if err := s.write(ctx, map[string]string{row: "g0 " + bad}); err != nil {
		t.Fatal(err)
	}
	if err := s.DB.WaitIdle(ctx); err != nil {
		t.Fatal(err)
	}
	mustNotice(t, s.nothingLeft(ctx), "parked, though not on purpose")
}

// TestNoticesAChangedPast: a snapshot, open or recorded, whose content has changed.
func TestNoticesAChangedPast(t *testing.T) {
	s, ctx := started(t)
	s.past[len(s.past)-1].digest[0]++
	s.past = s.past[len(s.past)-1:]
	mustNotice(t, s.within(ctx), "has changed")
	if err := s.hold(ctx); err != nil {
		t.Fatal(err)
	}
	s.held[0].until, s.held[0].digest[0] = time.Now(), s.held[0].digest[0]+1
	mustNotice(t, s.timeTravel(ctx), "has changed")
}

// TestNoticesGrowth: each bounded figure above its limit, and none at it.
func TestNoticesGrowth(t *testing.T) {
	var l limits
	var f figures
	for i := range f {
		f[i] = 1000
	}
	if over := l.check(f); len(over) > 0 {
		t.Errorf("while warming up: %v", over)
	}
	l.warm = true
	if over := l.check(f); len(over) > 0 {
		t.Errorf("as in the warm-up: %v", over)
	}
	for i, a := range allowances {
		grown := f
		grown[i] = int64(1000*a.times) + a.plus
		if over := l.check(grown); len(over) > 0 {
			t.Errorf("at the limit: %v", over)
		}
		grown[i]++
		if over := l.check(grown); len(over) != 1 || !strings.HasPrefix(over[0], figureNames[i]) {
			t.Errorf("%s above its limit: %v", figureNames[i], over)
		}
	}
}

// TestMeasures: the figures of a real node are plausible.
func TestMeasures(t *testing.T) {
	s, _ := started(t)
	for _, f := range []figure{heap, anonymous, goroutines, client, descriptors, disk, files,
		tablets, live, cells} {
		if s.now[f] <= 0 {
			t.Errorf("%s is %d", figureNames[f], s.now[f])
		}
	}
}
