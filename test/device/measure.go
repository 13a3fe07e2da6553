package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/percolator-go/percolator/test/disk"
)

// workload is a kind of load to measure.
type workload struct {
	name     string
	size     int  // bytes per value; 0: the web index
	twoPhase bool // commit in two phases although one tablet holds all cells
}

func (w workload) indexes() bool { return w.size == 0 }

// workloads returns the selected workloads.
func (o options) workloads() []workload {
	var all []workload
	for _, size := range o.sizes {
		all = append(all, workload{fmt.Sprintf("one-phase, %d B", size), size, false},
			workload{fmt.Sprintf("two-phase, %d B", size), size, true})
	}
	all = append(all, workload{name: "web index"})
	return slices.DeleteFunc(all, func(w workload) bool {
		return !strings.Contains(w.name, o.only)
	})
}

// figure is one measurement.
type figure struct {
	transactions int
	// bytes written to the device, after a sync, when the last transaction was acknowledged
	loaded   int64
	written  int64         // the same after the process has stopped
	took     time.Duration // the load
	cpu      time.Duration // of the process, user and system
	resident int64         // the most that it took, in bytes, mapped files included
}

// perTransaction returns the bytes written per transaction.
func (f figure) perTransaction() float64 { return float64(f.written) / float64(f.transactions) }

// measureAll measures all workloads and builds in each round, and prints a line after each; then
// the medians.
func measureAll(ctx context.Context, o options, out io.Writer) error {
	all := map[string][][]figure{} // by workload, build and round
	for round := range o.rounds {
		for _, w := range o.workloads() {
			if all[w.name] == nil {
				all[w.name] = make([][]figure, len(o.builds))
			}
			for b, build := range o.builds {
				f, err := measure(ctx, o, w, build)
				if err != nil {
					return fmt.Errorf("%s with %s: %w", w.name, build, err)
				}
				all[w.name][b] = append(all[w.name][b], f)
				_, _ = fmt.Fprintf(out, "round %d, %s, %s: %d transactions in %v, %.0f bytes each\n",
					round+1, w.name, build, f.transactions, f.took.Round(time.Millisecond),
					f.perTransaction())
			}
		}
	}
	return report(out, o, all)
}

// measure runs one workload with one build on a file system of its own.
func measure(ctx context.Context, o options, w workload, build string) (f figure, err error) {
	dir, err := os.MkdirTemp(o.dir, "percolator-device-")
	if err != nil {
		return figure{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d, err := disk.Make(dir, o.size)
	if err != nil {
		return figure{}, err
	}
	defer func() { err = errors.Join(err, d.Unmount()) }()
	data := filepath.Join(d.Dir(), "data")
	if w.indexes() {
		return indexPages(ctx, o, d, filepath.Join(build, "webindex"), data)
	}
	return commit(ctx, o, w, d, filepath.Join(build, "percolator"), data)
}

// written syncs the disk and returns its counter.
func written(d *disk.Disk) (int64, error) {
	if err := d.Sync(); err != nil {
		return 0, err
	}
	return d.Written()
}

// report prints the median of the rounds' figures, and the ratio of each build's to the
// first one's.
func report(out io.Writer, o options, all map[string][][]figure) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(w, "\nto the block device, median of %d\n\n", o.rounds)
	_, _ = fmt.Fprintln(w, "workload\tbuild\ttransactions\tMB at the last one\tMB in all\tbytes each\tlowest\thighest\tratio\t/s\tCPU s\tresident MB\t")
	for _, kind := range o.workloads() {
		first := 0.0
		for b, figures := range all[kind.name] {
			slices.SortFunc(figures, func(a, b figure) int {
				return int(a.perTransaction() - b.perTransaction())
			})
			f, last := figures[len(figures)/2], len(figures)-1
			if b == 0 {
				first = f.perTransaction()
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%.1f\t%.1f\t%.0f\t%.0f\t%.0f\t%.2f\t%.0f\t%.1f\t%.0f\t\n",
				kind.name, filepath.Base(o.builds[b]), f.transactions, mega(f.loaded),
				mega(f.written), f.perTransaction(),
				figures[0].perTransaction(), figures[last].perTransaction(),
				f.perTransaction()/first,
				float64(f.transactions)/f.took.Seconds(), f.cpu.Seconds(), mega(f.resident))
		}
	}
	return w.Flush()
}

func mega(n int64) float64 { return float64(n) / 1e6 }
