package soak

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	storage "github.com/percolator-go/percolator/test/disk"
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
	restart // milliseconds from the node's last restart to ready; 0: not restarted yet
	numFigures
)

var figureNames = [numFigures]string{
	"heap", "anonymous", "goroutines", "client", "descriptors", "disk", "files", "tablets", "live",
	"cells", "garbage", "lag", "restart",
}

// figures is one measurement.
type figures [numFigures]int64

// text formats a value of the figure with its unit.
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
	// The profile collects garbage first, so that what follows is what is held.
	if _, err := s.node.Get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
		return f, err
	}
	metrics, err := s.node.Metrics(ctx)
	if err != nil {
		return f, err
	}
	f[heap], f[goroutines] = int64(metrics["go_memstats_heap_alloc_bytes"]),
		int64(metrics["go_goroutines"])
	if f[anonymous], err = s.node.Memory("RssAnon"); err != nil {
		return f, err
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.node.PID()))
	if err != nil {
		return f, err
	}
	f[descriptors] = int64(len(open))
	if f[disk], f[files], err = storage.Usage(s.node.Dir); err != nil {
		return f, err
	}
	f[client] = int64(runtime.NumGoroutine())
	f[restart] = s.took.Milliseconds()
	status, err := s.status(ctx)
	if err != nil {
		return f, err
	}
	f[tablets] = int64(len(status))
	now, err := handle.Client(s.DB).Timestamp(ctx)
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

// status returns the status of each tablet of users' tables.
func (s *soak) status(ctx context.Context) ([]*pb.StatusResponse, error) {
	status, err := handle.Client(s.DB).Transport().NodeStatus(ctx)
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

// leastBound returns the least bound of the tablets: reads below it must be refused.
func leastBound(status []*pb.StatusResponse) percolator.Timestamp {
	least := ^uint64(0)
	for _, t := range status {
		least = min(least, t.Bound)
	}
	return percolator.Timestamp(least)
}
