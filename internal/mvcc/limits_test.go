package mvcc_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
)

func TestInvalidRequests(t *testing.T) {
	m := mvcctest.NewMemView()
	c := mvcc.Cell{Table: testTable, Row: "a", Column: "x"}
	other := mvcc.Cell{Table: testTable, Row: "b", Column: "x"}
	lim := mvcc.DefaultLimits()
	calls := map[string]func() error{
		"kind of a prewrite": func() error {
			_, _, err := mvcc.Prewrite(m, mvcc.PrewriteRequest{
				StartTS: 1, Writes: []mvcc.CellWriteRequest{{Cell: c, Kind: 4}},
			}, lim)
			return err
		},
		"class of a prewrite": func() error {
			_, _, err := mvcc.Prewrite(m, mvcc.PrewriteRequest{
				StartTS: 1, Writes: []mvcc.CellWriteRequest{{Cell: mvcc.Cell{Class: 2}, Kind: mvcc.KindPut}},
			}, lim)
			return err
		},
		"class of an intent": func() error {
			_, _, err := mvcc.Prewrite(m, mvcc.PrewriteRequest{StartTS: 1, Intents: []mvcc.Cell{{Class: 2}}}, lim)
			return err
		},
		"greatest timestamp": func() error {
			_, _, err := mvcc.Prewrite(m, mvcc.PrewriteRequest{StartTS: mvcc.MaxTimestamp}, lim)
			return err
		},
		"primary of a prewrite": func() error {
			_, _, err := mvcc.Prewrite(m, mvcc.PrewriteRequest{StartTS: 1, Primary: c,
				Writes: []mvcc.CellWriteRequest{
					{Cell: other, Kind: mvcc.KindPut}, {Cell: c, Kind: mvcc.KindLock},
				}}, lim)
			return err
		},
		"first write of a one-phase commit": func() error {
			_, err := mvcc.CheckOnePhase(m, mvcc.OnePhaseRequest{StartTS: 1,
				Writes: []mvcc.CellWriteRequest{
					{Cell: c, Kind: mvcc.KindPut}, {Cell: other, Kind: mvcc.KindPut},
					{Cell: c, Kind: mvcc.KindLock}, // the last write of a cell counts
				}})
			return err
		},
		"kind of a raw write": func() error {
			_, _, err := mvcc.RawWrite(m, mvcc.RawWriteRequest{Writes: []mvcc.CellWriteRequest{{Cell: c}}})
			return err
		},
		"commit": func() error { _, _, err := mvcc.Commit(m, mvcc.CommitRequest{}); return err },
		"one-phase commit": func() error {
			_, _, err := mvcc.OnePhaseCommit(m, mvcc.OnePhaseRequest{}, 1, lim)
			return err
		},
		"rollback": func() error { _, _, err := mvcc.Rollback(m, mvcc.RollbackRequest{}); return err },
		"status": func() error {
			_, _, err := mvcc.CheckTxnStatus(m, mvcc.CheckTxnStatusRequest{})
			return err
		},
		"resolve":   func() error { _, _, err := mvcc.ResolveLock(m, mvcc.ResolveLockRequest{}); return err },
		"heartbeat": func() error { _, _, err := mvcc.Heartbeat(m, mvcc.HeartbeatRequest{}); return err },
		"notify":    func() error { _, _, err := mvcc.NotifyCells(m, mvcc.NotifyRequest{}); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, mvcc.ErrInvalid) {
			t.Errorf("INVALID: %s: %v, want ErrInvalid", name, err)
		}
	}
}

// TestLimitsExact sets every size to its limit, which passes, and to one byte above, which does
// not.
func TestLimitsExact(t *testing.T) {
	lim := mvcc.Limits{Row: 4, Column: 3, Value: 6, Batch: 13, Inline: 1}
	write := func(row, column, value int) []mvcc.CellWriteRequest {
		return []mvcc.CellWriteRequest{{Cell: mvcc.Cell{
			Row: strings.Repeat("\x00", row), Column: strings.Repeat("\xff", column),
		},
			Kind: mvcc.KindPut, Value: make([]byte, value)}}
	}
	cases := []struct {
		row, column, value int
		what               string
	}{{4, 3, 6, ""}, {5, 3, 6, "row"}, {4, 4, 6, "column"}, {4, 3, 7, "value"}}
	for _, c := range cases {
		err := lim.Check(write(c.row, c.column, c.value), nil)
		var limit *mvcc.LimitError
		if errors.As(err, &limit) != (c.what != "") || (limit != nil && limit.What != c.what) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	var limit *mvcc.LimitError
	if err := lim.Check(write(4, 3, 6), []mvcc.Cell{{Row: "r"}}); !errors.As(err, &limit) ||
		limit.What != "batch" || limit.Size != 14 {
		t.Errorf("batch: %v", err)
	}
	if err := (mvcc.Limits{}).Check(write(1000, 1000, 1000), nil); err != nil {
		t.Errorf("no limits: %v", err)
	}
}

// TestTimersAreSmall: a timer of the longest row and column passes. A value 20 bytes longer does
// not in the table of timers, where the timer job reads many at once.
func TestTimersAreSmall(t *testing.T) {
	lim := mvcc.DefaultLimits()
	cell, value := mvcc.Timer{
		Target: mvcc.Cell{
			Table: testTable, Row: strings.Repeat("r", lim.Row), Column: strings.Repeat("c", lim.Column),
		},
		Due: 1, After: math.MaxInt64,
	}.Write()
	check := func(c mvcc.Cell, value []byte) error {
		return lim.Check([]mvcc.CellWriteRequest{{Cell: c, Kind: mvcc.KindPut, Value: value}}, nil)
	}
	if err := check(cell, value); err != nil {
		t.Error(err)
	}
	long := make([]byte, len(value)+2*binary.MaxVarintLen64)
	var limit *mvcc.LimitError
	if err := check(cell, long); !errors.As(err, &limit) || limit.What != "timer" {
		t.Errorf("a timer of %d bytes: %v", len(long), err)
	}
	if err := check(mvcc.Cell{Table: testTable, Row: "r"}, long); err != nil {
		t.Errorf("a value of another table: %v", err)
	}
}

// TestManyDuplicates covers the path for many writes: with a map.
func TestManyDuplicates(t *testing.T) {
	var writes []mvcc.CellWriteRequest
	for i := range 3 * mvcc.FewWrites {
		writes = append(writes, put(fmt.Sprintf("r%02d.x", i%(2*mvcc.FewWrites)), fmt.Sprint(i))...)
	}
	kept := mvcc.LastWrites(writes)
	if len(kept) != 2*mvcc.FewWrites {
		t.Fatalf("%d writes kept, want %d", len(kept), 2*mvcc.FewWrites)
	}
	last := make(map[mvcc.Cell]string)
	for _, w := range writes {
		last[w.Cell] = string(w.Value)
	}
	for _, w := range kept {
		if string(w.Value) != last[w.Cell] {
			t.Errorf("%s holds %s, want %s", w.Cell.Row, w.Value, last[w.Cell])
		}
	}
	unique := writes[:2*mvcc.FewWrites]
	if got := mvcc.LastWrites(unique); &got[0] != &unique[0] {
		t.Error("writes without duplicates are copied")
	}
}

func TestMissingValueIsCorrupt(t *testing.T) {
	m := mvcctest.NewMemView()
	c := parseCell("a.x")
	m.Apply([]mvcc.Mutation{
		{Group: mvcc.GroupWrite, Cell: c, Write: &mvcc.Write{
			CommitTS: 2, StartTS: 1, Kind: mvcc.KindPut, Long: true,
		}},
	})
	if _, err := mvcc.Get(m, c, 3); !errors.Is(err, mvcc.ErrCorrupt) {
		t.Errorf("get: %v, want ErrCorrupt", err)
	}
	_, err := mvcc.Scan(m, mvcc.ScanRequest{Span: mvcc.Span{Table: testTable}, At: 3})
	if !errors.Is(err, mvcc.ErrCorrupt) {
		t.Errorf("scan: %v, want ErrCorrupt", err)
	}
}

// TestErrorIsCut: the recorded error of a failed run is cut to its bound and stays valid UTF-8.
func TestErrorIsCut(t *testing.T) {
	m := mvcctest.NewMemView()
	c := parseCell("a.doc")
	m.Apply([]mvcc.Mutation{{Group: mvcc.GroupNotify, Cell: c, Notify: &mvcc.Notify{TS: 1}}})
	_, list, err := mvcc.FailNotify(m, mvcc.FailNotifyRequest{
		Cell: c, TS: 1, Attempts: 1, Error: strings.Repeat("€", mvcc.MaxNotifyError),
	})
	if err != nil {
		t.Fatal(err)
	}
	text := list[0].Notify.Error
	if len(text) > mvcc.MaxNotifyError || len(text) < mvcc.MaxNotifyError-3 || !utf8.ValidString(text) {
		t.Errorf("%d bytes, valid %t", len(text), utf8.ValidString(text))
	}
}

// TestScanIsBounded: a page over cells without results ends, and the scan continues behind it.
func TestScanIsBounded(t *testing.T) {
	m := mvcctest.NewMemView()
	for i := range mvcc.MaxUnshown + 10 {
		c := mvcc.Cell{Table: testTable, Row: fmt.Sprintf("%08d", i), Column: "x"}
		m.Apply([]mvcc.Mutation{
			{Group: mvcc.GroupWrite, Cell: c, Write: &mvcc.Write{CommitTS: 2, StartTS: 1, Kind: mvcc.KindDelete}},
		})
	}
	r := mvcc.ScanRequest{Span: mvcc.Span{Table: testTable}, At: 3}
	first, err := mvcc.Scan(m, r)
	if err != nil || first.Done || first.Last == nil || len(first.Cells) != 0 {
		t.Fatalf("first page: %+v, %v", first, err)
	}
	r.Resume = first.Last
	second, err := mvcc.Scan(m, r)
	if err != nil || !second.Done || second.Last.Row != fmt.Sprintf("%08d", mvcc.MaxUnshown+9) {
		t.Fatalf("second page: %+v, %v", second, err)
	}
}

func TestCellOrder(t *testing.T) {
	ordered := []mvcc.Cell{
		{}, {Column: "\x00"}, {Column: "a"}, {Class: mvcc.ClassAck}, {Row: "\x00"}, {Row: "a"},
		{Row: "a", Column: "z"},
		{Row: "a", Class: mvcc.ClassAck, Column: "a"}, {Row: "a\x00"}, {Row: "b"}, {Row: "\xff\xff"},
		{Table: 1},
	}
	for i, a := range ordered {
		for j, b := range ordered {
			want := max(-1, min(1, i-j))
			if got := a.Compare(b); got != want {
				t.Errorf("%+v against %+v: %d, want %d", a, b, got, want)
			}
		}
	}
}
