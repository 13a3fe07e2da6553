// Package figure8 measures the overhead of transactions over raw operations on a tablet (§3.2): a
// read, a write in one phase and a write in two phases of a single cell, beside a raw get and a raw
// put, with 1, 64 and 512 callers, on one node and on three, in the process of the callers and
// through Dial, with the data inside and outside of the page cache.
package figure8

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/bench/turns"
)

// Measurements returns the measurement.
func Measurements() []harness.Measurement {
	return []harness.Measurement{{
		Name: "figure8", Title: "Overhead of transactions", Budget: 5 * time.Minute, Run: run,
	}}
}

// Operations on a single cell.
const (
	rawGet   = "raw get"
	readTxn  = "read transaction"
	rawPut   = "raw put"
	onePhase = "one-phase transaction"
	twoPhase = "two-phase transaction"
)

// overhead compares a transaction with the raw operation that it consists of.
type overhead struct{ of, to, aim, paper string }

var overheads = []overhead{
	{readTxn, rawGet, "≥ 1.0", "0.94"},
	{onePhase, rawPut, "≥ 0.8", "0.23"},
	{twoPhase, rawPut, "≥ 0.45", "0.23"},
}

// Tables.
const (
	ratios = "transaction / raw operation (ratio: 64 callers)"
	rates  = "64 callers"
)

// scene is where the operations run.
type scene struct {
	name    string
	nodes   int
	dial    bool
	memory  int64 // limit of the process; 0: none
	rows    int   // prepared for reads, and overwritten
	size    int   // bytes of a value
	callers []int
}

// scenes returns the scenes of a full run or, much smaller, of a smoke run.
func scenes(smoke bool) []scene {
	const rows = 50_000
	callers := []int{1, 64, 512}
	all := []scene{
		{name: "one node, in process", nodes: 1, rows: rows, size: 100, callers: callers},
		{name: "one node, Dial", nodes: 1, dial: true, rows: rows, size: 100, callers: callers},
		{name: "three nodes, in process", nodes: 3, rows: rows, size: 100, callers: callers},
		{name: "three nodes, Dial", nodes: 3, dial: true, rows: rows, size: 100, callers: callers},
		{name: "one node, in process, out of cache", nodes: 1, memory: 256 << 20, rows: 200_000, size: 1000, callers: []int{64}},
	}
	if smoke {
		for i := range all {
			all[i].rows, all[i].callers = 1000, []int{64}
		}
		return slices.Delete(all, 4, 5)
	}
	return all
}

func run(ctx context.Context, r *harness.Run) error {
	r.Axes("one", "callers (one node, in process)", "operations/s", true, true)
	r.Axes("three", "callers (three nodes, in process)", "operations/s", true, true)
	r.Note("A raw operation reads or writes one cell through the tablet's actor, Raft and the store, without the oracle, as the paper's Bigtable. Nodes refuse raw writes of remote clients, so transactions that write have no ratio there.")
	r.Note("Of three nodes the client calls the one that leads the tablet, and another one runs the oracle. Nodes and callers share one process.")
	d := time.Second
	if r.Smoke {
		d = 50 * time.Millisecond
	}
	for _, s := range scenes(r.Smoke) {
		for _, o := range overheads {
			if !s.dial || o.to == rawGet {
				r.Paper(ratios, o.of+", "+s.name, o.paper) // now, so that this table is the first, with its rows in this order
			}
		}
	}
	for _, s := range scenes(r.Smoke) {
		r.Logf("%s", s.name)
		err := measure(ctx, r, s, d)
		if errors.Is(err, errUnable) {
			r.Note("Without %s: %v.", s.name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// measure measures all operations in a scene, by turns.
func measure(ctx context.Context, r *harness.Run, s scene, d time.Duration) (err error) {
	rig, err := open(ctx, r, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	kinds := []string{rawGet, readTxn, rawPut, onePhase, twoPhase}
	if s.dial {
		kinds = slices.Delete(kinds, 2, 3)
	}
	for range r.Rounds {
		for _, callers := range s.callers {
			perSecond := map[string]float64{}
			for _, kind := range kinds {
				if perSecond[kind], err = rig.repeat(ctx, r, kind, callers, d); err != nil {
					return fmt.Errorf("%s with %d callers: %w", kind, callers, err)
				}
			}
			compare(r, s, callers, perSecond)
			if err := rig.verify(ctx, callers); err != nil {
				return err
			}
		}
		slices.Reverse(kinds) // for the next round: compared kinds stay adjacent
	}
	return nil
}

// compare records the ratios of a round.
func compare(r *harness.Run, s scene, callers int, perSecond map[string]float64) {
	for _, o := range overheads {
		if perSecond[o.to] == 0 {
			continue
		}
		row, ratio := o.of+", "+s.name, perSecond[o.of]/perSecond[o.to]
		if callers != 64 {
			r.Value(ratios, row, fmt.Sprintf("callers: %d", callers), ratio)
			continue
		}
		r.Ratio(ratios, row, ratio, o.aim)
	}
}

// repeat measures one operation and returns its rate.
func (g *rig) repeat(ctx context.Context, r *harness.Run, kind string, callers int, d time.Duration) (float64, error) {
	var calls atomic.Int64
	before := harness.CPUOf()
	f, err := turns.Repeat(ctx, callers, d/5, d, func(ctx context.Context, caller, i int) error {
		calls.Add(1)
		return g.do(ctx, kind, caller, g.row(caller, callers, i), i)
	})
	if err != nil {
		return 0, err
	}
	used := harness.CPUOf() - before
	if callers == 64 {
		row := kind + ", " + g.scene.name
		r.Value(rates, row, "/s", f.PerSecond)
		r.Value(rates, row, "ms p50", f.Millis(0.5)[0])
		r.Value(rates, row, "ms p99", f.Millis(0.99)[0])
		r.Value(rates, row, "µs CPU", float64(used.Microseconds())/float64(calls.Load()))
	}
	if plot := map[string]string{"one node, in process": "one", "three nodes, in process": "three"}[g.scene.name]; plot != "" {
		r.Point(plot, kind, float64(callers), f.PerSecond)
	}
	return f.PerSecond, nil
}
