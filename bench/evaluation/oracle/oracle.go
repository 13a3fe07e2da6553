// Package oracle measures the timestamp oracle (§2.3): the rate of timestamps for many clients over
// sockets, the latency under an open-loop load, and the pause of callers when the process that grants
// timestamps is killed.
package oracle

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/bench/turns"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/test/cluster"
)

// Measurements returns this package's measurements.
func Measurements() []harness.Measurement {
	return []harness.Measurement{{
		Name: "oracle", Title: "Timestamp oracle (§2.3)", Budget: 2 * time.Minute, Run: run,
	}}
}

// client requests timestamps over connections of its own, as one process does. Concurrent calls of
// the function one share a request; each call of the function many sends its own.
type client struct {
	one  func(ctx context.Context) (mvcc.Timestamp, error)
	many func(ctx context.Context, count int) (first mvcc.Timestamp, n int, err error)
}

func run(ctx context.Context, r *harness.Run) error {
	return turns.WithCluster(ctx, cluster.Config{
		Nodes: 3, Binary: filepath.Join(r.Binary, "percolator"),
	}, func(c *cluster.Cluster, _ string) error {
		s := &stage{r: r, c: c}
		for _, measure := range []func(context.Context) error{s.rates, s.latencies, s.failOvers} {
			if err := measure(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// stage is the cluster under measurement.
type stage struct {
	r *harness.Run
	c *cluster.Cluster
}

// connect returns the clients, each with connections of its own, and a function that closes them.
func (s *stage) connect(ctx context.Context, clients int) (of []client, end func() error, err error) {
	var open []*percolator.DB
	end = func() error {
		var errs []error
		for _, db := range open {
			errs = append(errs, db.Close())
		}
		return errors.Join(errs...)
	}
	for range clients {
		db, err := s.c.Dial(ctx)
		if err != nil {
			return nil, nil, errors.Join(err, end())
		}
		c := handle.Client(db)
		open, of = append(open, db), append(of, client{one: c.Timestamp, many: c.Transport().Timestamps})
	}
	return of, end, nil
}

// leader returns the process that grants timestamps.
func (s *stage) leader(ctx context.Context) (*cluster.Process, error) {
	db, err := s.c.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	nodes, err := handle.Client(db).Admin().Nodes(ctx, &pb.NodesRequest{})
	if err != nil {
		return nil, err
	}
	for _, n := range nodes.GetNodes() {
		for _, p := range s.c.Nodes() {
			if n.LeadsMeta && n.Listen == p.Listen {
				return p, nil
			}
		}
	}
	return nil, errors.New("no node leads the meta tablet")
}
