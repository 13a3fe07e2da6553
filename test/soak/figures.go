package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// figure names one thing that is measured after each cycle, when nothing is left to run.
type figure int

const (
	heap       figure = iota // bytes of live objects, right after a collection
	anonymous                // bytes of resident memory that are not of files
	goroutines               // of the node
	client                   // goroutines of the driver, a client
	descriptors
	disk    // bytes allocated in the node's directory
	files   // in the node's directory
	tablets // of users' tables
	live    // bytes of keys and values that users can see
	cells   // that users can see
	garbage // entries that wait to be collected
	lag     // milliseconds from the least bound of history to now
	restart // milliseconds from the node's start to ready, the last time
	numFigures
)

var figureNames = [numFigures]string{
	"heap", "anonymous", "goroutines", "client", "descriptors", "disk", "files", "tablets", "live",
	"cells", "garbage", "lag", "restart",
}

// figures is one measurement.
type figures [numFigures]int64

// String is a figure with its unit.
func (f figure) text(v int64) string {
	switch f {
	case heap, anonymous, disk, live:
		return fmt.Sprintf("%.1f MiB", float64(v)/(1<<20))
	case lag, restart:
		return fmt.Sprintf("%.1f s", float64(v)/1000)
	default:
		return strconv.FormatInt(v, 10)
	}
}

// measure reads everything but live and cells, which the verifier has counted.
func (s *soak) measure(ctx context.Context) (f figures, err error) {
	if err := s.node.collect(); err != nil {
		return f, err
	}
	metrics, err := scrape(ctx, s.node.http)
	if err != nil {
		return f, err
	}
	f[heap], f[goroutines] = int64(metrics["go_memstats_heap_alloc_bytes"]),
		int64(metrics["go_goroutines"])
	if f[anonymous], err = residentAnonymous(s.node.cmd.Process.Pid); err != nil {
		return f, err
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.node.cmd.Process.Pid))
	if err != nil {
		return f, err
	}
	f[descriptors] = int64(len(open))
	if f[disk], f[files], err = usage(s.o.nodeDir()); err != nil {
		return f, err
	}
	f[client] = int64(runtime.NumGoroutine())
	f[restart] = s.node.took.Milliseconds()
	status, err := s.status(ctx)
	if err != nil {
		return f, err
	}
	f[tablets] = int64(len(status))
	now, err := handle.Client(s.db).Timestamp(ctx)
	if err != nil {
		return f, err
	}
	for _, t := range status {
		f[garbage] += int64(t.Garbage)
		if bound := mvcc.Timestamp(t.Bound); bound > 0 {
			f[lag] = max(f[lag], now.Millis()-bound.Millis())
		}
	}
	return f, nil
}

// status is that of the tablets of users' tables.
func (s *soak) status(ctx context.Context) ([]*pb.StatusResponse, error) {
	status, err := handle.Client(s.db).Transport().NodeStatus(ctx)
	if err != nil {
		return nil, err
	}
	var out []*pb.StatusResponse
	for _, t := range status.Tablets {
		if t.GetTablet().GetStartTable() >= uint32(mvcc.FirstUserTable) {
			out = append(out, t)
		}
	}
	return out, nil
}

// leastBound is the least bound of the tablets: reads below it must be refused.
func leastBound(status []*pb.StatusResponse) percolator.Timestamp {
	least := ^uint64(0)
	for _, t := range status {
		least = min(least, t.Bound)
	}
	return percolator.Timestamp(least)
}

// scrape reads the metrics without labels.
func scrape(ctx context.Context, addr string) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Close = true // a connection that stays would be goroutines of the node
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	out := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			out[name] = v
		}
	}
	return out, lines.Err()
}

// residentAnonymous is RssAnon of a process, in bytes.
func residentAnonymous(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, is := strings.CutPrefix(line, "RssAnon:"); is {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, errors.New("soak: the system does not say RssAnon")
}

// usage is what the files of a directory occupy, and how many there are. A file may go meanwhile.
func usage(dir string) (bytes, files int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		files++
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			bytes += st.Blocks * 512
		}
		return nil
	})
	return bytes, files, err
}
