package cli

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// leased is a process that grants leases and records those requested by exports. (On a slow machine
// the client requests another for its open snapshot.)
type leased struct {
	*txntest.Process
	mu    sync.Mutex
	asked []*pb.HoldHistoryRequest
	bound uint64
}

func (l *leased) HoldHistory(_ context.Context,
	req *pb.HoldHistoryRequest) (*pb.HoldHistoryResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.HasPrefix(req.Holder, "export ") {
		l.asked = append(l.asked, req)
	}
	return &pb.HoldHistoryResponse{Bound: l.bound, TtlMs: req.TtlMs}, nil
}

// export runs an export to a file over the process.
func (l *leased) export(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	var errs bytes.Buffer
	app := &shell.App{
		Name: "percolator", Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: &errs,
		Connect: func(context.Context, []string, rpc.ClientConfig) (txn.Transport, error) {
			return l, nil
		},
	}
	return Run(t.Context(), app, append([]string{"export", "t"}, args...)), errs.String()
}

// An export holds the history of its snapshot from before the first row, and releases it.
func TestExportHoldsHistory(t *testing.T) {
	b := newBulk(t)
	b.stdin = lines(10)
	b.must(shell.ExitDone, "", "load", "t")
	l := &leased{Process: b.cluster.Process(1, 1)}
	scanned := false
	l.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetScan() != nil && !scanned {
			scanned = true
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.asked) == 0 || l.asked[0].Oldest != req.GetScan().At {
				t.Errorf("the scan at %d begins with the leases %v", req.GetScan().At, l.asked)
			}
		}
		return txntest.Fault{}
	})
	if code, stderr := l.export(t, b.dir+"/out"); code != shell.ExitDone {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	first, last := l.asked[0], l.asked[len(l.asked)-1]
	if first.TtlMs != 60_000 || last.Oldest != 0 || first.Holder != last.Holder || !scanned {
		t.Errorf("leases %v", l.asked)
	}

	// A bound above the snapshot is reported at once.
	l.bound = 1 << 62
	if code, stderr := l.export(t, b.dir+"/late"); code != shell.ExitFailed ||
		!strings.Contains(stderr, "--restart starts a new one") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
