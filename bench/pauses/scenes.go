package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/test/cluster"
)

// scene is a series of changes to a cluster under load.
type scene struct {
	name    string
	cluster cluster.Config
	lasts   time.Duration // of the load; must be longer than play
	dirties int           // bytes per second that another program writes to the nodes' file system
	play    func(ctx context.Context, s *stage) error
}

var scenes = []scene{
	{name: "splits", cluster: cluster.Config{Nodes: 3}, lasts: 12 * time.Second, play: splits},
	{
		name: "splits with another writer", cluster: cluster.Config{Nodes: 3}, lasts: 15 * time.Second,
		dirties: 300 << 20, play: splits,
	},
	{name: "merges", cluster: cluster.Config{Nodes: 3}, lasts: 20 * time.Second, play: merges},
	{name: "moves", cluster: cluster.Config{Nodes: 3}, lasts: 10 * time.Second, play: moves},
	{
		name: "full disk", cluster: cluster.Config{Nodes: 5, Disks: 4 << 30},
		lasts: 20 * time.Second, play: fullDisk,
	},
}

// boundaries lists the rows at which the table is split.
var boundaries = []string{"200", "400", "600", "800"}

// metaTablet is the id of the meta tablet, whose leadership the scene moves does not transfer.
const metaTablet = 1

// between is the pause between two steps.
const between = 1500 * time.Millisecond

// prepare creates the table and waits until all tablets have their replicas.
func (s *stage) prepare(ctx context.Context) error {
	if err := s.db.CreateTable(ctx, percolator.TableSpec{Name: column.Table}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return cluster.Replicated(ctx, s.db, 2) // meta and the table
}

func (s *stage) tablets(ctx context.Context) ([]*pb.TabletDescriptor, error) {
	const most = 1000
	return handle.Client(s.db).Transport().Locate(ctx, mvcc.MetaTable, "", most)
}

// splits splits the table at all boundaries, one after the other.
func splits(ctx context.Context, s *stage) error {
	for _, row := range boundaries {
		if err := txn.Sleep(ctx, between); err != nil {
			return err
		}
		s.begin("split at %s", row)
		if err := handle.Client(s.db).Transport().SplitTablet(ctx, column.Table, row); err != nil {
			return err
		}
	}
	return txn.Sleep(ctx, between)
}

// merges reverts the splits.
func merges(ctx context.Context, s *stage) error {
	if err := splits(ctx, s); err != nil {
		return err
	}
	for _, row := range boundaries {
		req := &pb.MergeTabletsRequest{Table: column.Table, Row: []byte(row)}
		s.begin("merge at %s", row)
		if _, err := handle.Client(s.db).Admin().MergeTablets(ctx, req); err != nil {
			return fmt.Errorf("merge at %s: %w", row, err)
		}
		if err := txn.Sleep(ctx, between); err != nil {
			return err
		}
	}
	return nil
}

// moves transfers the leadership of every user tablet to each of its replicas in turn.
func moves(ctx context.Context, s *stage) error {
	found, err := s.tablets(ctx)
	if err != nil {
		return err
	}
	for _, d := range found {
		for _, r := range d.Replicas {
			if d.TabletId == metaTablet {
				break
			}
			s.begin("move the leadership of tablet %d to node %d", d.TabletId, r.NodeId)
			req := &pb.MoveTabletRequest{TabletId: d.TabletId, ToNode: r.NodeId, Leader: true}
			// A move to the current leader is refused.
			_, _ = handle.Client(s.db).Admin().MoveTablet(ctx, req)
			if err := txn.Sleep(ctx, between); err != nil {
				return err
			}
		}
	}
	return nil
}

// left is the number of bytes left free by fill.
const left = 20 << 20

// fullDisk fills the disk of the node that leads the meta tablet.
func fullDisk(ctx context.Context, s *stage) error {
	if err := txn.Sleep(ctx, between); err != nil {
		return err
	}
	nodes, err := handle.Client(s.db).Admin().Nodes(ctx, &pb.NodesRequest{})
	if err != nil {
		return err
	}
	for _, p := range s.c.Nodes() {
		for _, n := range nodes.GetNodes() {
			if n.LeadsMeta && n.Listen == p.Listen {
				s.begin("fill the disk of node %d, which leads meta and %d tablets", p.Index, n.Leaders)
				return fill(p.Disk.Dir())
			}
		}
	}
	return errors.New("no node leads the meta tablet")
}

// fill allocates all free space of a file system but left.
func fill(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		return err
	}
	return errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-left), f.Close())
}

// dirty writes to a file in dir without syncing it, at a rate in bytes per second, until ctx ends.
func dirty(ctx context.Context, dir string, perSecond int) error {
	if perSecond == 0 {
		return nil
	}
	f, err := os.Create(filepath.Join(dir, "dirty"))
	if err != nil {
		return err
	}
	const tick = 10 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	block := make([]byte, int64(perSecond)*int64(tick)/int64(time.Second))
	for err == nil {
		select {
		case <-ctx.Done():
			return f.Close()
		case <-ticker.C:
			_, err = f.Write(block)
		}
	}
	return errors.Join(err, f.Close())
}
