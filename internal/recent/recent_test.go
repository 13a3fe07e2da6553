package recent_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/recent"
	"github.com/percolator-go/percolator/internal/wire"
)

var begin = time.Unix(60_000_000, 0)

// tablet returns a tablet of table 16 with these bounds; "" is the table's end.
func tablet(id uint64, from, to string, reads, writes uint64) *pb.StatusResponse {
	d := &pb.TabletDescriptor{
		TabletId: id, StartTable: 16, StartRow: []byte(from), EndTable: 16, EndRow: []byte(to),
	}
	if to == "" {
		d.EndTable = 17
	}
	return &pb.StatusResponse{Tablet: d, Reads: reads, Mutations: writes}
}

// sums returns all reads and writes of a grid.
func sums(g *recent.Grid) (reads, writes float64) {
	for _, r := range g.Ranges {
		for i := range g.Minutes {
			reads, writes = reads+r.Reads[i], writes+r.Writes[i]
		}
	}
	return math.Round(reads), math.Round(writes)
}

// TestHeat: operations of tablets are counted once, in their minute and range, across splits and
// new leaders; a node with the rest of them completes the picture.
func TestHeat(t *testing.T) {
	h := recent.NewHeat(begin)
	h.Sample(begin.Add(20*time.Second), []*pb.StatusResponse{tablet(1, "", "", 10, 1)})
	h.Sample(begin.Add(40*time.Second), []*pb.StatusResponse{tablet(1, "", "", 30, 1)})
	if h.Due(begin.Add(59*time.Second)) || !h.Due(begin.Add(61*time.Second)) {
		t.Error("a sample is due once a minute")
	}
	h.Sample(begin.Add(90*time.Second), []*pb.StatusResponse{ // split
		tablet(1, "", "m", 50, 1), tablet(2, "m", "", 100, 0),
	})
	h.Sample(begin.Add(110*time.Second), []*pb.StatusResponse{tablet(1, "", "m", 50, 1)}) // 2 moved away
	h.Sample(begin.Add(115*time.Second), []*pb.StatusResponse{
		tablet(1, "", "m", 50, 1), tablet(2, "m", "", 7, 0), // and returned: its count restarts
	})
	other := recent.NewHeat(begin)
	other.Sample(begin.Add(112*time.Second), []*pb.StatusResponse{tablet(2, "m", "", 9, 0)})

	g := recent.NewGrid([][]*wire.HeatColumn{h.Read(), other.Read()}, 16)
	if len(g.Minutes) != 2 || len(g.Ranges) != 2 {
		t.Fatalf("%d minutes, %d ranges: %+v", len(g.Minutes), len(g.Ranges), g)
	}
	left, right := g.Ranges[0], g.Ranges[1]
	if left.FromRow != "" || left.ToRow != "m" || right.FromRow != "m" || right.ToTable != 17 {
		t.Errorf("%+v", g.Ranges)
	}
	// The first minute's 30 belong to both halves; other has sampled once, and the first minute is
	// in the middle of its sample.
	if left.Reads[0] != 15 || right.Reads[0] != 15+9 || left.Reads[1] != 20 || right.Reads[1] != 107 {
		t.Errorf("left %v, right %v", left.Reads, right.Reads)
	}
	if _, writes := sums(g); writes != 1 {
		t.Errorf("%v writes", writes)
	}
	if g := recent.NewGrid([][]*wire.HeatColumn{h.Read()}, 17); len(g.Ranges) != 0 {
		t.Errorf("another table has %+v", g)
	}
}

// TestHeatIsBounded: with thousands of tablets over hours it holds at most an hour of a bounded
// number of ranges, no operation is lost, and a hot tablet keeps its own range.
func TestHeatIsBounded(t *testing.T) {
	const tablets = 3000
	h := recent.NewHeat(begin)
	status := make([]*pb.StatusResponse, tablets)
	row := func(i int) string {
		if i == 0 || i == tablets {
			return ""
		}
		return fmt.Sprintf("%05d", i)
	}
	for i := range status {
		status[i] = tablet(uint64(i), row(i), row(i+1), 0, 0)
	}
	for minute := range 70 {
		for i, s := range status {
			s.Reads += 2
			if i == 1234 {
				s.Mutations += 1_000_000
			}
		}
		h.Sample(begin.Add(time.Duration(minute)*time.Minute+30*time.Second), status)
	}
	columns := h.Read()
	if len(columns) != recent.Minutes {
		t.Errorf("%d minutes", len(columns))
	}
	for _, c := range columns {
		if len(c.Ranges) > recent.MaxRanges {
			t.Fatalf("%d ranges", len(c.Ranges))
		}
	}
	g := recent.NewGrid([][]*wire.HeatColumn{columns}, 0)
	if len(g.Ranges) > recent.MaxRanges {
		t.Errorf("%d ranges are shown", len(g.Ranges))
	}
	if reads, writes := sums(g); reads != 60*2*tablets || writes != 60*1_000_000 {
		t.Errorf("%v reads, %v writes", reads, writes)
	}
	for _, r := range g.Ranges {
		if r.Writes[30] > 0 && (string(r.FromRow) > row(1234) || string(r.ToRow) < row(1235) ||
			r.Writes[30] != 1_000_000) {
			t.Errorf("%s to %s has %v writes", r.FromRow, r.ToRow, r.Writes[30])
		}
	}
}

// TestPoints: points hold the changes between readings, also of one observer; their number is
// bounded; those of several nodes are summed.
func TestPoints(t *testing.T) {
	var points recent.Points
	var operations metrics.Durations
	for i := range recent.MaxPoints + 10 {
		points.Add(begin.Add(time.Duration(i)*recent.Every), recent.Figures{
			Operations: operations.Read(), Backlog: uint64(i), ClientTransactions: uint64(20 * i),
			Observers: map[string]recent.ObserverFigures{
				"parse": {Runs: uint64(30 * i), Failures: uint64(10 * i)}, "index": {Conflicts: uint64(i)},
			},
		})
		for range 50 {
			operations.Observe(20 * time.Millisecond)
		}
	}
	got := points.Read("parse")
	if len(got) != recent.MaxPoints || got[0].Backlog != 10 {
		t.Fatalf("%d points, the first %v", len(got), got[0])
	}
	for i, p := range got {
		if p.OperationsPerS != 5 || p.OperationP99Ms <= 10 || p.OperationP99Ms > 25 ||
			p.TransactionsPerS != 2 || p.Findings != nil || p.Backlog != uint64(i+10) {
			t.Fatalf("point %d: %v", i, p)
		}
		if o := p.Observers; len(o) != 1 || o[0].RunsPerS != 3 || o[0].FailuresPerS != 1 {
			t.Fatalf("point %d has observers %v", i, o)
		}
	}
	two, old := uint32(2), uint64(5000)
	all := recent.Together([][]*wire.Point{got, {
		{UnixMs: got[0].UnixMs + 3000, OperationsPerS: 1, OperationP99Ms: 99, Backlog: 7, Findings: &two,
			Observers: []*wire.ObserverPoint{{Name: "parse", RunsPerS: 1, OldestMs: &old}}},
	}})
	first := all[0]
	if len(all) != recent.MaxPoints || first.OperationsPerS != 6 || first.OperationP99Ms != 99 ||
		first.Backlog != 17 || first.GetFindings() != 2 || all[1].OperationsPerS != 5 {
		t.Errorf("%d points, the first %v, then %v", len(all), first, all[1])
	}
	if o := first.Observers; len(o) != 1 || o[0].RunsPerS != 4 || o[0].GetOldestMs() != 5000 {
		t.Errorf("the observers of both: %v", o)
	}
}
