// Package device measures the bytes written to the block device: per transaction that a node
// commits, and for the web index's demo. Every measurement has an ext4 file system of its own,
// in a sparse file on a loop device, and reads the device's counter of sectors written, which
// includes the file system's journal and counts each page as often as it is written. It needs
// root, mkfs.ext4 and loop devices. (write_bytes of /proc/PID/io differs: it counts a mapped
// page whenever it becomes dirty.)
//
//	make device                                     one-phase and two-phase transactions, and the web index
//	make device ARGS='-build base,bin -rounds 3'    two builds in turns; ratios are to the first
//	make device ARGS='-only one-phase -count 1000000 -sizes 100,10000'
//
// The evaluation's measurement "device" does the same with one build. A build is a folder with the
// binaries percolator and webindex. Only these are run, by their command lines, so that builds of
// any commits can be compared.
package device

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/percolator-go/percolator/bench/turns"
	"github.com/percolator-go/percolator/examples/webindex/corpus"
)

type options struct {
	count   int
	callers int
	limit   int
	dir     string
	size    int64
	pages   string
}

// Command measures as the flags say. It generates the web index's pages, which is not measured.
func Command(ctx context.Context) (err error) {
	var o options
	plan := turns.Plan{Columns: columns}
	only := plan.Flags(1)
	builds := flag.String("build", "bin",
		"comma-separated folders with the binaries percolator and webindex")
	sizes := flag.String("sizes", "100", "comma-separated sizes of the values, in bytes")
	flag.IntVar(&o.count, "count", 200_000, "number of transactions per measurement, of one cell each")
	flag.IntVar(&o.callers, "callers", 64, "number of concurrent callers")
	flag.IntVar(&o.limit, "limit", 0, "number of the web index's pages; 0: all")
	flag.StringVar(&o.pages, "pages", "",
		"tree of the web index's pages (default: the Go documentation, generated)")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "directory for the file systems' images")
	flag.Int64Var(&o.size, "image-size", 32<<30,
		"size of each file system in bytes; the image is sparse")
	flag.Parse()
	if flag.NArg() > 0 || o.count < 1 || o.callers < 1 {
		return errors.New("-count and -callers must be at least 1, and no arguments are accepted")
	}
	all, err := workloads(*sizes)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(w workload) bool { return !strings.Contains(w.name, *only) })
	for _, w := range all {
		plan.Workloads = append(plan.Workloads, w.name)
	}
	folders, names, err := turns.Builds(*builds, "percolator", "webindex")
	if err != nil {
		return err
	}
	plan.Variants = names
	plan.Measure = func(ctx context.Context, w, build int) ([]float64, error) {
		f, err := measure(ctx, o, all[w], folders[build])
		return f.values(), err
	}
	if o.pages == "" && slices.ContainsFunc(all, workload.indexes) {
		if o.pages, err = corpus.DefaultDir(); err != nil {
			return err
		}
		if err := corpus.Generate(ctx, o.pages); err != nil {
			return err
		}
	}
	return plan.Run(ctx, os.Stdout)
}

// workloads returns one-phase and two-phase transactions of each size, and the web index.
func workloads(sizes string) (all []workload, err error) {
	for size := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(size)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-sizes %q: want numbers of at least 1", sizes)
		}
		all = append(all, workload{name: fmt.Sprintf("one-phase, %d B", n), size: n},
			workload{name: fmt.Sprintf("two-phase, %d B", n), size: n, twoPhase: true})
	}
	return append(all, workload{name: "web index"}), nil
}
