package node_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node"
)

// logged is a log that a test reads.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// has reports whether a line contains all of the texts.
func (l *logged) has(texts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(strings.Split(l.text.String(), "\n"), func(line string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool {
			return !strings.Contains(line, text)
		})
	})
}

func setPolicy(ctx context.Context, n *node.Node, set *pb.Policy) (*pb.Policy, error) {
	r, err := handle.Client(n.DB()).Admin().ClusterPolicy(ctx, &pb.ClusterPolicyRequest{Set: set})
	return r.GetPolicy(), err
}

// TestPolicyOverrulesFlags: a node started with one replica becomes leader of meta in a cluster of
// three, and no replica is removed: its log and status show the policy in force. Then the policy is
// changed through another node and takes effect.
func TestPolicyOverrulesFlags(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	log := &logged{}
	r := three(ctx, t, 1, func(i int, c *node.Config) {
		if i == 2 {
			c.Replicas, c.Given = 1, []string{"history"} // history as by default
			c.Logger = slog.New(slog.NewTextHandler(log,
				&slog.HandlerOptions{Level: slog.LevelWarn}))
		}
		if i == 0 {
			c.History = 20 * time.Minute
		}
	})
	r.lead(ctx, cluster.MetaTablet, 2)
	r.until(ctx, "placement runs on the node", func() bool {
		return r.nodes[2].Status().Placement.GetTarget() != 0
	})
	if s := r.nodes[2].Status(); s.Placement.GetTarget() != 3 {
		t.Errorf("placement uses %d replicas", s.Placement.GetTarget())
	} else if want := []string{"--replicas 1 is overruled by the cluster's 3",
		"--history 10m0s is overruled by the cluster's 20m0s"}; !slices.Equal(s.PolicyDiffers,
		want) {
		t.Errorf("the node reports %q", s.PolicyDiffers)
	}
	if !log.has("setting=replicas node=1 cluster=3", `"percolator cluster set replicas=1"`) {
		t.Error("no warning of the node's replicas")
	}
	if log.has("setting=replace-dead-after") {
		t.Error("a warning of what nobody has given")
	}
	if s := r.nodes[1].Status(); len(s.PolicyDiffers) != 0 {
		t.Errorf("a node without flags reports %q", s.PolicyDiffers)
	}
	r.placed(ctx, 2, 3, 0, 1, 2)

	var refused *txn.ServerError
	_, err := setPolicy(ctx, r.nodes[0], &pb.Policy{Replicas: proto.Uint64(2)})
	if !errors.As(err, &refused) || refused.Code != pb.Error_CODE_INVALID {
		t.Errorf("two replicas: %v", err)
	}
	p, err := setPolicy(ctx, r.nodes[0], &pb.Policy{Replicas: proto.Uint64(1)})
	if err != nil || p.GetReplicas() != 1 || p.GetVersion() != 2 || p.GetHistoryMs() != 1_200_000 {
		t.Fatalf("set: %v, %v", p, err)
	}
	r.until(ctx, "the replicas are taken away", func() bool {
		s := r.status(ctx, 2)
		return len(s.GetTablet().GetReplicas()) == 1
	})
	if s := r.nodes[2].Status(); len(s.PolicyDiffers) != 1 {
		t.Errorf("the node still reports %q", s.PolicyDiffers)
	}
}

// TestPolicyOutlivesRestart: a single node restarted with other flags keeps its cluster's policy,
// also for observers and for leases on history.
func TestPolicyOutlivesRestart(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	history, deadline := 5*time.Second, time.Second
	r := newRig(t, 1, func(_ int, c *node.Config) {
		c.History, c.Given = history, []string{"history"}
		c.Observers = func(g *percolator.Registry) {
			g.Strong("o", percolator.Column{Table: "t", Name: "c"},
				func(context.Context, *percolator.Tx, percolator.Notification) error {
					return nil
				}, percolator.Deadline(deadline))
		}
	})
	check := func(want time.Duration) {
		t.Helper()
		now, err := handle.Client(r.nodes[0].DB()).Timestamp(ctx)
		if err != nil {
			t.Fatal(err)
		}
		hold := &pb.HoldHistoryRequest{Holder: "h", Oldest: uint64(now), TtlMs: 1000}
		if l, err := handle.Client(r.nodes[0].DB()).Transport().HoldHistory(ctx, hold); err != nil ||
			l.HistoryMs != uint64(want.Milliseconds()) {
			t.Errorf("history as leases know it: %v, %v; want %v", l, err, want)
		}
	}
	check(5 * time.Second)
	r.stop(0)
	history = time.Hour
	r.start(0)
	check(5 * time.Second)
	if _, err := setPolicy(ctx, r.nodes[0],
		&pb.Policy{HistoryMs: proto.Uint64(60_000)}); err != nil {
		t.Fatal(err)
	}
	check(time.Minute)
	r.stop(0)
	history, deadline = 2*time.Second, 30*time.Second // below the policy's
	r.start(0)
	check(time.Minute)
}

// TestHistoryAboveDeadlines: a client cannot set a history shorter than the deadlines of the nodes'
// observers, since no node that registers them could restart.
func TestHistoryAboveDeadlines(t *testing.T) {
	dir := t.TempDir()
	link := func(cfg *node.Config) {
		cfg.Observers = func(r *percolator.Registry) {
			r.Strong("o", cell, func(context.Context, *percolator.Tx,
				percolator.Notification) error {
				return nil
			}, percolator.Deadline(20*time.Second))
		}
	}
	n := open(t, dir, link)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := setPolicy(ctx, n, &pb.Policy{HistoryMs: proto.Uint64(20_000)}); err == nil {
		t.Error("a history as short as an observer's deadline was set")
	}
	if _, err := setPolicy(ctx, n, &pb.Policy{HistoryMs: proto.Uint64(20_001)}); err != nil {
		t.Error(err)
	}
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
	open(t, dir, link)
}
