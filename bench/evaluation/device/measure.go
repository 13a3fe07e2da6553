package device

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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

// figure is one measurement.
type figure struct {
	transactions int
	// bytes written to the device, after a sync, when the last transaction was acknowledged
	loaded   int64
	written  int64         // bytes written to the device when the process has stopped
	took     time.Duration // the load
	cpu      time.Duration // of the process, user and system
	resident int64         // the most that it took, in bytes, mapped files included

	cells, cellBytes int64 // of the web index: cells written, and bytes of their rows, columns and values
}

// perTransaction returns the bytes written per transaction.
func (f figure) perTransaction() float64 { return float64(f.written) / float64(f.transactions) }

// columns names the values of a figure.
var columns = []string{
	"bytes each", "transactions", "MB at the last one", "MB in all", "/s", "CPU s", "resident MB",
}

func (f figure) values() []float64 {
	return []float64{
		f.perTransaction(), float64(f.transactions), mega(f.loaded), mega(f.written),
		float64(f.transactions) / f.took.Seconds(), f.cpu.Seconds(), mega(f.resident),
	}
}

// measure runs one workload with one build on a fresh file system.
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

// written syncs the disk and returns its counter of bytes written.
func written(d *disk.Disk) (int64, error) {
	if err := d.Sync(); err != nil {
		return 0, err
	}
	return d.Written()
}

func mega(n int64) float64 { return float64(n) / 1e6 }
