package recent

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/pbjson"
	"github.com/percolator-go/percolator/internal/wire"
)

const (
	// Minutes is the retention of Heat, in minutes.
	Minutes = 60
	// MaxRanges is the maximum number of ranges per minute, and of displayed ranges.
	MaxRanges = 256
)

// Heat records the load of the tablets that a node led, for each minute of the last hour. All
// methods may be called concurrently.
type Heat struct {
	mu      sync.Mutex
	columns []*wire.HeatColumn // oldest first; the last one is still updated
	before  map[uint64]counts  // counters by tablet, at the last sample
	at      time.Time          // time of the last sample, or of the node's start
}

type counts struct{ reads, writes uint64 }

// NewHeat returns an empty Heat for a node that starts at now.
func NewHeat(now time.Time) *Heat { return &Heat{at: now} }

// Due reports whether a sample is due: whether a minute of Unix time has begun since the last one.
func (h *Heat) Due(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Unix()/60 != h.at.Unix()/60
}

// Sample adds the load of the tablets since the last sample to the minute at the middle of
// that time. leading are all tablets that the node leads; their counters start at zero with
// its leadership.
func (h *Heat) Sample(now time.Time, leading []*pb.StatusResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	column := h.column(h.at.Add(now.Sub(h.at)/2).Unix() / 60)
	seen := make(map[uint64]counts, len(leading))
	var ranges []*wire.HeatRange
	for _, t := range leading {
		d, is := t.GetTablet(), counts{t.GetReads(), t.GetMutations()}
		was := h.before[d.GetTabletId()]
		if is.reads < was.reads || is.writes < was.writes { // the node lost and regained leadership
			was = counts{}
		}
		seen[d.GetTabletId()] = is
		ranges = append(ranges, &wire.HeatRange{
			StartTable: d.GetStartTable(), StartRow: d.GetStartRow(), EndTable: d.GetEndTable(),
			EndRow: d.GetEndRow(), EndUnbounded: d.GetEndUnbounded(),
			Reads: is.reads - was.reads, Writes: is.writes - was.writes,
		})
	}
	// A new list, because readers may have the old one.
	column.Ranges = fewer(slices.Concat(column.Ranges, ranges))
	h.before, h.at = seen, now
}

// column returns the column of the minute, and removes expired ones.
func (h *Heat) column(minute int64) *wire.HeatColumn {
	if n := len(h.columns); n > 0 && h.columns[n-1].Minute >= minute {
		return h.columns[n-1]
	}
	c := &wire.HeatColumn{Minute: minute}
	h.columns = append(h.columns, c)
	if len(h.columns) > Minutes {
		h.columns = slices.Delete(h.columns, 0, 1)
	}
	return c
}

// Read returns all columns. They must not be changed.
func (h *Heat) Read() []*wire.HeatColumn {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := slices.Clone(h.columns)
	if n := len(out); n > 0 { // copy the last one: Sample replaces its list
		out[n-1] = &wire.HeatColumn{Minute: out[n-1].Minute, Ranges: out[n-1].Ranges}
	}
	return out
}

// fewer sorts the slice, merges equal ranges, and then adjacent ranges with little load, so that at
// most MaxRanges are left. It changes none of the ranges in the slice.
func fewer(ranges []*wire.HeatRange) (out []*wire.HeatRange) {
	slices.SortStableFunc(ranges, func(a, b *wire.HeatRange) int {
		return cmp.Or(order(start(a), start(b)), order(end(a), end(b)))
	})
	var merged []*wire.HeatRange
	for _, r := range ranges {
		if n := len(merged); n > 0 && start(merged[n-1]) == start(r) && end(merged[n-1]) == end(r) {
			merged[n-1] = both(merged[n-1], r)
			continue
		}
		merged = append(merged, r)
	}
	weights := make([]uint64, len(merged))
	for i, r := range merged {
		weights[i] = r.Reads + r.Writes
	}
	last := -1
	for i, group := range groups(weights) {
		if group == last {
			out[group] = both(out[group], merged[i])
			continue
		}
		out, last = append(out, merged[i]), group
	}
	return out
}

// both returns the union of two ranges, of which a starts first.
func both(a, b *wire.HeatRange) *wire.HeatRange {
	last := a
	if order(end(a), end(b)) < 0 {
		last = b
	}
	return &wire.HeatRange{
		StartTable: a.StartTable, StartRow: a.StartRow,
		EndTable: last.EndTable, EndRow: last.EndRow, EndUnbounded: last.EndUnbounded,
		Reads: a.Reads + b.Reads, Writes: a.Writes + b.Writes,
	}
}

// groups partitions a sequence of weights into at most MaxRanges groups of adjacent elements, each
// of a similar total weight, so that a hot element ends its group. It returns the group of each
// element.
func groups(weights []uint64) []int {
	out := make([]int, len(weights))
	if len(weights) <= MaxRanges {
		for i := range out {
			out[i] = i
		}
		return out
	}
	total := float64(len(weights)) // each weighs at least one, so that idle ones are distributed too
	for _, w := range weights {
		total += float64(w)
	}
	group, held, share := 0, 0.0, total/(MaxRanges-1)
	for i, w := range weights {
		out[i] = group
		if held += float64(w) + 1; held >= share {
			group, held = group+1, 0
		}
	}
	return out
}

// Grid is the heat of a cluster: one range per row, one minute per column.
type Grid struct {
	Minutes []int64     `json:"minutes"` // Unix time in minutes
	Ranges  []GridRange `json:"ranges"`
}

// GridRange is one row of a Grid. The load of a tablet that covers several rows of the Grid is
// divided equally among these.
type GridRange struct {
	FromTable uint32       `json:"from_table"`
	FromRow   pbjson.Bytes `json:"from_row"`
	ToTable   uint32       `json:"to_table"`
	ToRow     pbjson.Bytes `json:"to_row"`
	ToEnd     bool         `json:"to_end"`
	Reads     []float64    `json:"reads"` // number of reads per minute of Grid.Minutes
	Writes    []float64    `json:"writes"`
}

// NewGrid merges the columns of several nodes. table, if not 0, restricts the grid to one
// table.
func NewGrid(nodes [][]*wire.HeatColumn, table uint32) *Grid {
	g := &Grid{Minutes: []int64{}, Ranges: []GridRange{}}
	last := int64(math.MinInt64)
	seen, weights := map[int64]bool{}, map[wire.Position]uint64{}
	each := func(do func(minute int64, r *wire.HeatRange)) {
		for _, c := range slices.Concat(nodes...) {
			for _, r := range c.Ranges {
				if r = within(r, table); r != nil {
					do(c.Minute, r)
				}
			}
		}
	}
	each(func(minute int64, r *wire.HeatRange) {
		last, seen[minute] = max(last, minute), true
		weights[start(r)] += r.Reads + r.Writes
		weights[end(r)] += 0
	})
	if len(seen) == 0 {
		return g
	}
	for m := max(slices.Min(slices.Collect(maps.Keys(seen))), last-Minutes+1); m <= last; m++ {
		g.Minutes = append(g.Minutes, m)
	}
	bounds := boundaries(weights)
	for i := range len(bounds) - 1 {
		from, to := bounds[i], bounds[i+1]
		g.Ranges = append(g.Ranges, GridRange{
			FromTable: uint32(from.Table), FromRow: pbjson.Bytes(from.Row),
			ToTable: uint32(to.Table), ToRow: pbjson.Bytes(to.Row), ToEnd: to == unbounded,
			Reads: make([]float64, len(g.Minutes)), Writes: make([]float64, len(g.Minutes)),
		})
	}
	each(func(minute int64, r *wire.HeatRange) {
		column := int(minute - g.Minutes[0])
		if column < 0 || r.Reads+r.Writes == 0 {
			return
		}
		first, after := place(bounds, start(r)), place(bounds, end(r))
		if bounds[after] != end(r) { // the range ends inside that row of the grid
			after++
		}
		share := float64(after - first)
		for i := first; i < after; i++ {
			g.Ranges[i].Reads[column] += float64(r.Reads) / share
			g.Ranges[i].Writes[column] += float64(r.Writes) / share
		}
	})
	return g
}

// boundaries returns the positions in order: all, or, of more than MaxRanges+1, the first, the
// last, and those that divide the load evenly.
func boundaries(weights map[wire.Position]uint64) []wire.Position {
	all := slices.SortedFunc(maps.Keys(weights), order)
	list := make([]uint64, len(all)-1)
	for i := range list {
		list[i] = weights[all[i]]
	}
	var out []wire.Position
	last := -1
	for i, group := range groups(list) {
		if group != last {
			out, last = append(out, all[i]), group
		}
	}
	return append(out, all[len(all)-1])
}

// place returns the index of the grid's row that contains the position.
func place(bounds []wire.Position, at wire.Position) int {
	i, found := slices.BinarySearchFunc(bounds, at, order)
	if !found {
		i--
	}
	return max(i, 0)
}

// within returns the part of a range in the table, or nil. With table 0 it returns the whole
// range.
func within(r *wire.HeatRange, table uint32) *wire.HeatRange {
	if table == 0 {
		return r
	}
	from := wire.Position{Table: mvcc.TableID(table)}
	to := wire.Position{Table: mvcc.TableID(table + 1)}
	if order(end(r), from) <= 0 || order(start(r), to) >= 0 {
		return nil
	}
	cut := proto.CloneOf(r)
	if order(start(r), from) < 0 {
		cut.StartTable, cut.StartRow = table, nil
	}
	if order(end(r), to) > 0 {
		cut.EndTable, cut.EndRow, cut.EndUnbounded = table+1, nil, false
	}
	return cut
}

// unbounded is the position after every row.
var unbounded = wire.Position{Table: math.MaxUint32}

func start(r *wire.HeatRange) wire.Position {
	return wire.Position{Table: mvcc.TableID(r.StartTable), Row: string(r.StartRow)}
}

func end(r *wire.HeatRange) wire.Position {
	if r.EndUnbounded {
		return unbounded
	}
	return wire.Position{Table: mvcc.TableID(r.EndTable), Row: string(r.EndRow)}
}

func order(a, b wire.Position) int {
	return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Row, b.Row))
}
