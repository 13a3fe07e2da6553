// Command device measures the bytes written to the block device: per transaction that a node
// commits, and for the web index's demo. Every measurement has an ext4 file system of its own,
// in a sparse file on a loop device, and reads the device's counter of sectors written, which
// includes the file system's journal and counts each page as often as it is written. It needs
// root, mkfs.ext4 and loop devices. (write_bytes of /proc/PID/io differs: it counts a mapped
// page whenever it becomes dirty.)
//
//	go run ./test/device -build bin                  one-phase and two-phase transactions, and the web index
//	go run ./test/device -build base,bin -rounds 3   two builds in turns; ratios are to the first
//	go run ./test/device -build bin -only one-phase -count 1000000 -sizes 100,10000
//
// A build is a folder with the binaries percolator and webindex. Only these are run, by their
// command lines, so that builds of any commits can be compared.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/percolator-go/percolator/examples/webindex/corpus"
	"github.com/percolator-go/percolator/test/disk"
)

type options struct {
	builds  []string
	only    string
	rounds  int
	count   int
	sizes   []int
	callers int
	limit   int
	dir     string
	size    int64
	pages   string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	o, err := parse(ctx)
	if err == nil {
		err = measureAll(ctx, o, os.Stdout)
	}
	stop()
	switch {
	case errors.Is(err, disk.ErrUnable):
		fmt.Fprintln(os.Stderr, "device: not measured:", err)
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "device:", err)
		os.Exit(1)
	}
}

// parse reads the command line and generates the web index's pages, which is not measured.
func parse(ctx context.Context) (o options, err error) {
	builds := flag.String("build", "bin",
		"comma-separated folders with the binaries percolator and webindex")
	sizes := flag.String("sizes", "100", "comma-separated sizes of the values, in bytes")
	flag.StringVar(&o.only, "only", "", "measure only the workloads whose name contains this: one-phase, two-phase, web index")
	flag.IntVar(&o.rounds, "rounds", 1, "number of measurements of each workload and build, in turns")
	flag.IntVar(&o.count, "count", 200_000, "number of transactions per measurement, of one cell each")
	flag.IntVar(&o.callers, "callers", 64, "number of concurrent callers")
	flag.IntVar(&o.limit, "limit", 0, "number of the web index's pages; 0: all")
	flag.StringVar(&o.pages, "pages", "",
		"tree of the web index's pages (default: the Go documentation, generated)")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "directory for the file systems' images")
	flag.Int64Var(&o.size, "image-size", 32<<30,
		"size of each file system in bytes; the image is sparse")
	flag.Parse()
	if flag.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if o.rounds < 1 || o.count < 1 || o.callers < 1 {
		return o, errors.New("-rounds, -count and -callers must be at least 1")
	}
	for s := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return o, fmt.Errorf("-sizes %q: want numbers of at least 1", *sizes)
		}
		o.sizes = append(o.sizes, n)
	}
	if o.builds, err = folders(*builds); err != nil || o.pages != "" ||
		!slices.ContainsFunc(o.workloads(), workload.indexes) {
		return o, err
	}
	if o.pages, err = corpus.DefaultDir(); err != nil {
		return o, err
	}
	return o, corpus.Generate(ctx, o.pages)
}

// folders returns the absolute paths of the builds.
func folders(list string) (out []string, err error) {
	for b := range strings.SplitSeq(list, ",") {
		b, err := filepath.Abs(b)
		if err != nil {
			return nil, err
		}
		for _, name := range []string{"percolator", "webindex"} {
			if _, err := os.Stat(filepath.Join(b, name)); err != nil {
				return nil, fmt.Errorf("-build: %w", err)
			}
		}
		out = append(out, b)
	}
	return out, nil
}
