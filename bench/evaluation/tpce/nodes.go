package tpce

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/test/cluster"
)

// layout is the shape of a cluster.
type layout struct {
	nodes, replicas int
	zones           int // 0: none
	cpus            float64
}

func (l layout) String() string {
	return fmt.Sprintf("%d nodes, %d replicas", l.nodes, l.replicas)
}

// tabletsEach is the number of tablets that each node leads, of each table.
const tabletsEach = 2

// onNodes is a brokerage on a cluster of processes.
type onNodes struct {
	*inPercolator
	cluster *cluster.Cluster
	layout  layout
	dir     string
}

// openNodes starts a cluster of processes of this program, in a new folder of parent.
func openNodes(ctx context.Context, parent string, l layout, args ...string) (s *onNodes, err error) {
	dir, err := os.MkdirTemp(parent, "tpce-")
	if err != nil {
		return nil, err
	}
	s = &onNodes{layout: l, dir: dir, inPercolator: &inPercolator{tablets: tabletsEach * l.nodes}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	s.cluster, err = cluster.New(cluster.Config{
		Nodes: l.nodes, Zones: l.zones, Dir: dir,
		Args: append([]string{"--replicas", strconv.Itoa(l.replicas), "--no-splits", "--pprof"}, args...),
	})
	if err != nil {
		return s, err
	}
	if err := s.cluster.Start(ctx); err != nil {
		return s, err
	}
	s.db, err = s.cluster.Dial(ctx)
	return s, err
}

func (s *onNodes) close() error {
	var errs []error
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// prepare creates and loads the tables, spreads them over the nodes, and returns an emulator for
// them. The quotas begin afterwards.
func (s *onNodes) prepare(ctx context.Context, d *dataset) (*emulator, error) {
	if err := s.createTables(ctx, d); err != nil {
		return nil, err
	}
	if err := s.spread(ctx); err != nil {
		return nil, err
	}
	if err := s.load(ctx, d); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	for _, p := range s.cluster.Nodes() {
		if s.layout.cpus > 0 {
			if err := p.Quota(s.layout.cpus); err != nil {
				return nil, err
			}
		}
	}
	return newEmulator(d, s), nil
}

// release ends the quotas, so that the final checks are fast.
func (s *onNodes) release() error {
	var errs []error
	for _, p := range s.cluster.Nodes() {
		if s.layout.cpus > 0 && p.Running() {
			errs = append(errs, p.EndQuota())
		}
	}
	return errors.Join(errs...)
}

// cpu returns the nodes' processor time so far.
func (s *onNodes) cpu() time.Duration {
	var pids []int
	for _, p := range s.cluster.Nodes() {
		if p.Running() {
			pids = append(pids, p.PID())
		}
	}
	return harness.CPUOf(pids...)
}
