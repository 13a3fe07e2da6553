package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/examples/webindex/corpus"
	"github.com/percolator-go/percolator/examples/webindex/page"
	"github.com/percolator-go/percolator/test/disk"
)

// Measurements returns the measurement.
func Measurements() []harness.Measurement {
	return []harness.Measurement{{
		Name: "device", Title: "Bytes written to the block device", Budget: 3 * time.Minute, Run: run,
	}}
}

// table is the table of the measurement.
const table = "bytes written to the device"

// blockBytes is the size of a block of the file system that holds the web index's pages.
const blockBytes = 4096

func run(ctx context.Context, r *harness.Run) error {
	o := options{count: 100_000, callers: 64, dir: r.Dir, size: 8 << 30}
	if r.Smoke {
		o.count = 2000
	}
	err := measureAll(ctx, r, o)
	if errors.Is(err, disk.ErrUnable) {
		r.Logf("device skipped: %v", err)
		r.Note("Skipped: %v.", err)
		return nil
	}
	r.Note("Each measurement has an ext4 file system of its own; its journal counts. %d transactions of one cell each, from %d callers. "+
		"User bytes are those of the rows, columns and values, or of the web index's pages as they were loaded.", o.count, o.callers)
	return err
}

func measureAll(ctx context.Context, r *harness.Run, o options) error {
	for range r.Rounds {
		for _, w := range []workload{{name: "one-phase, 100 B", size: 100}, {name: "two-phase, 100 B", size: 100, twoPhase: true}} {
			f, err := measure(ctx, o, w, r.Binary)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			record(r, w.name, f, float64(o.count*(w.size+len(row(0))+len(column.Name))), "")
		}
	}
	if r.Smoke {
		return nil // building the web index takes longer than a smoke run may
	}
	return measureIndex(ctx, r, o)
}

// measureIndex indexes the Go documentation once: it takes about a minute.
func measureIndex(ctx context.Context, r *harness.Run, o options) (err error) {
	if o.pages, err = corpus.DefaultDir(); err != nil {
		return err
	}
	if err := corpus.Generate(ctx, o.pages); err != nil {
		return err
	}
	root, err := filepath.Abs("../..") // of the repository, from this module
	if err != nil {
		return err
	}
	builds, err := os.MkdirTemp(r.Dir, "webindex-")
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", filepath.Join(builds, "webindex"), ".")
	build.Dir = filepath.Join(root, "examples", "webindex", "webindex")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the web index: %w: %s", err, text)
	}
	files, _, err := page.Tree(o.pages)
	if err != nil {
		return err
	}
	user, blocks, err := pageBytes(files)
	if err != nil {
		return err
	}
	f, err := measure(ctx, o, workload{name: "web index"}, builds)
	if err != nil {
		return fmt.Errorf("web index: %w", err)
	}
	const ratio = "device bytes per user byte"
	record(r, "web index", f, float64(user), "≤ 15")
	r.Ratio(ratio, "web index, pages in blocks of 4 KiB", float64(f.written)/float64(blocks), "≤ 15")
	if f.cellBytes > 0 {
		r.Ratio(ratio, "web index, all cells", float64(f.written)/float64(f.cellBytes), "")
	}
	r.Note("The web index loads %d pages of %.1f MB in all (%.1f MB in blocks of 4 KiB, as du counts them), and its observers index and export them. "+
		"They write %d cells of %.1f MB: %.1f bytes for each byte of a page.",
		len(files), float64(user)/1e6, float64(blocks)/1e6, f.cells, float64(f.cellBytes)/1e6, float64(f.cellBytes)/float64(user))
	return nil
}

// pageBytes returns the bytes of the pages, and those of the blocks that their files occupy.
func pageBytes(files []page.File) (bytes, blocks int, err error) {
	for _, f := range files {
		text, err := f.Read()
		if err != nil {
			return 0, 0, err
		}
		bytes += len(text)
		blocks += (len(text) + blockBytes - 1) / blockBytes * blockBytes
	}
	return bytes, blocks, nil
}

// record records one measurement, and the ratio of the bytes that it wrote to the device to the
// user's bytes.
func record(r *harness.Run, row string, f figure, user float64, aim string) {
	r.Value(table, row, "bytes/transaction", f.perTransaction())
	r.Value(table, row, "MB", mega(f.written))
	r.Value(table, row, "transactions/s", float64(f.transactions)/f.took.Seconds())
	r.Ratio("device bytes per user byte", row, float64(f.written)/user, aim)
}
