package figure8

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/ports"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/cluster"
)

// rig is a cluster in this process, with rows for raw operations and rows for transactions in one
// tablet, and clients of the node that leads it.
type rig struct {
	scene  scene
	seed   uint64
	raw    *txn.Client // in the node's process, which alone may write raw cells
	tablet *pb.TabletDescriptor
	table  uint32
	one    *percolator.DB
	two    *percolator.DB
	gets   txn.Transport             // of raw gets
	last   [mostCallers]atomic.Int64 // of each caller: row<<32 | value of its last transaction
	ends   []func() error            // called by close, the last one first
}

var column = percolator.Column{Table: "cells", Name: "c"}

// mostCallers bounds the callers of a scene.
const mostCallers = 512

// open starts the nodes and fills the tables.
func open(ctx context.Context, r *harness.Run, s scene) (g *rig, err error) {
	g = &rig{scene: s, seed: r.Seed}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	if s.memory > 0 {
		leave, err := confine(s.memory)
		if err != nil {
			return g, err
		}
		g.ends = append(g.ends, leave)
	}
	nodes, err := g.start(ctx, filepath.Join(r.Dir, strings.ReplaceAll(s.name, " ", "-")))
	if err != nil {
		return g, err
	}
	if err := nodes[0].DB().CreateTable(ctx, percolator.TableSpec{Name: column.Table}); err != nil {
		return g, err
	}
	leader, err := settle(ctx, nodes)
	if err != nil {
		return g, err
	}
	if err := g.connect(ctx, leader); err != nil {
		return g, err
	}
	return g, g.fill(ctx)
}

// connect makes the clients of the node that leads the table.
func (g *rig) connect(ctx context.Context, leader *node.Node) (err error) {
	transport := func() (txn.Transport, error) { return handle.Client(leader.DB()).Transport(), nil }
	if g.raw, err = g.client(transport, false); err != nil {
		return err
	}
	if g.scene.dial {
		transport = func() (txn.Transport, error) {
			return rpc.Dial(ctx, []string{leader.Addr()}, rpc.ClientConfig{Insecure: true})
		}
	}
	one, err := g.client(transport, false)
	if err != nil {
		return err
	}
	two, err := g.client(transport, true)
	if err != nil {
		return err
	}
	g.one, g.two, g.gets = handle.NewDB(one), handle.NewDB(two), one.Transport()
	id, err := g.raw.TableID(ctx, column.Table)
	if err != nil {
		return err
	}
	found, err := g.raw.Transport().Locate(ctx, id, "", 1)
	if err != nil {
		return err
	}
	g.table, g.tablet = uint32(id), found[0]
	return nil
}

// start opens the nodes.
func (g *rig) start(ctx context.Context, dir string) ([]*node.Node, error) {
	const portsEach = 4
	base, err := ports.Run(portsEach * g.scene.nodes)
	if err != nil {
		return nil, err
	}
	var listen []string
	for i := range g.scene.nodes {
		listen = append(listen, ports.Local(base+i*portsEach))
	}
	nodes := make([]*node.Node, g.scene.nodes)
	opening, openCtx := errgroup.WithContext(ctx)
	for i := range nodes {
		cfg := node.DefaultConfig()
		cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = filepath.Join(dir, strconv.Itoa(i)), listen[i], "", true
		cfg.Splits.Off = true // one tablet
		if g.scene.memory > 0 {
			cfg.Memory = uint64(g.scene.memory)
		}
		if len(nodes) > 1 {
			cfg.Peer, cfg.Gossip = ports.Local(base+i*portsEach+1), ports.Local(base+i*portsEach+2)
			cfg.Expect, cfg.Join = len(nodes), slices.Delete(slices.Clone(listen), i, i+1)
		}
		opening.Go(func() (err error) {
			nodes[i], err = node.Open(openCtx, cfg)
			return err
		})
	}
	err = opening.Wait()
	g.ends = append(g.ends, func() error { return closeAll(context.WithoutCancel(ctx), nodes) })
	return nodes, err
}

// closeAll closes the nodes that are open, at once: one alone would wait for the others.
func closeAll(ctx context.Context, nodes []*node.Node) error {
	var closing errgroup.Group
	for _, n := range nodes {
		if n != nil {
			closing.Go(func() error { return n.Close(ctx) })
		}
	}
	return closing.Wait()
}

// client returns a client that is closed with the rig.
func (g *rig) client(transport func() (txn.Transport, error), twoPhase bool) (*txn.Client, error) {
	t, err := transport()
	if err != nil {
		return nil, err
	}
	c := txn.NewClient(t, txn.Config{TwoPhaseOnly: twoPhase})
	g.ends = append(g.ends, c.Close)
	return c, nil
}

// Waiting for replicas and leaders.
const (
	settleTimeout = time.Minute
	settleEvery   = 200 * time.Millisecond
	metaTablet    = 1 // its leader runs the oracle
)

// settle waits until every tablet has three voting replicas, and until the oracle is on another node
// than the leader of the table, as placement wants it, and returns that leader.
func settle(ctx context.Context, nodes []*node.Node) (*node.Node, error) {
	if len(nodes) == 1 {
		return nodes[0], nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if err := cluster.Replicated(ctx, nodes[0].DB(), 2); err != nil { // meta and the table
		return nil, err
	}
	for {
		addr, err := settled(ctx, nodes[0].DB())
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(nodes, func(n *node.Node) bool { return n.Addr() == addr }); i >= 0 {
			return nodes[i], nil
		}
		if txn.Sleep(ctx, settleEvery) != nil {
			return nil, fmt.Errorf("after %v no node leads the table without running the oracle, too", settleTimeout)
		}
	}
}

// settled returns the address of the table's leader, or "" while that node also runs the oracle,
// whose leadership it then moves.
func settled(ctx context.Context, db *percolator.DB) (string, error) {
	nodes, err := db.Admin().Nodes(ctx)
	if err != nil {
		return "", err
	}
	tablets, err := db.Admin().Tablets(ctx, column.Table)
	if err != nil {
		return "", err
	}
	for _, n := range nodes {
		switch {
		case n.ID != tablets[0].Leader:
		case n.LeadsMeta:
			// The order is refused while another move is in progress; settle repeats it.
			others := slices.DeleteFunc(nodes, func(o percolator.ClusterNode) bool { return o.ID == n.ID })
			if len(others) > 0 {
				_ = db.Admin().MoveLeader(ctx, metaTablet, others[0].ID)
			}
			return "", nil
		default:
			return n.Addr, nil
		}
	}
	return "", nil
}

// Filling.
const (
	fillBatch   = 100 // rows of a request
	fillCallers = 8
)

// fill writes the rows that are read.
func (g *rig) fill(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fillCallers)
	for first := 0; first < g.scene.rows; first += fillBatch {
		group.Go(func() error { return g.fillRaw(ctx, first) })
		group.Go(func() error {
			return g.one.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
				for i := first; i < min(first+fillBatch, g.scene.rows); i++ {
					tx.Set(rowName(i), column, g.value(0))
				}
				return nil
			})
		})
	}
	return group.Wait()
}

func (g *rig) fillRaw(ctx context.Context, first int) error {
	w := &pb.RawWriteRequest{}
	for i := first; i < min(first+fillBatch, g.scene.rows); i++ {
		w.Writes = append(w.Writes, g.write(i, 0))
	}
	_, err := g.send(ctx, g.raw.Transport(), &pb.TabletRequest{Op: &pb.TabletRequest_RawWrite{RawWrite: w}})
	return err
}

// value returns a value of the scene's size that begins with i.
func (g *rig) value(i int64) []byte {
	v := bytes.Repeat([]byte{'.'}, g.scene.size)
	binary.BigEndian.PutUint64(v, uint64(i))
	return v
}

func rowName(i int) string { return fmt.Sprintf("row/%08d", i) }

func (g *rig) cell(i int) *pb.Cell {
	return &pb.Cell{Table: g.table, Row: []byte("raw/" + rowName(i)), Column: []byte(column.Name)}
}

func (g *rig) write(i int, value int64) *pb.CellWrite {
	return &pb.CellWrite{Cell: g.cell(i), Kind: pb.Kind_KIND_PUT, Value: g.value(value)}
}

func (g *rig) send(ctx context.Context, t txn.Transport, req *pb.TabletRequest) (*pb.TabletResponse, error) {
	req.TabletId = g.tablet.TabletId // without an epoch: replicas may still change
	r, err := t.Send(ctx, g.tablet, req)
	if err == nil && r.GetError() != nil {
		err = fmt.Errorf("raw operation: %v", r.GetError())
	}
	return r, err
}

// row returns the row of a caller's operation i: random, so that data outside of the cache is read
// from the disk, and of no other caller, so that transactions do not conflict.
func (g *rig) row(caller, callers, i int) int {
	own := g.scene.rows / callers
	return caller*own + rand.New(rand.NewPCG(g.seed, uint64(i))).IntN(own)
}

// do carries out an operation.
func (g *rig) do(ctx context.Context, kind string, caller, at, i int) error {
	switch kind {
	case rawPut:
		w := &pb.RawWriteRequest{Writes: []*pb.CellWrite{g.write(at, int64(i))}}
		_, err := g.send(ctx, g.raw.Transport(), &pb.TabletRequest{Op: &pb.TabletRequest_RawWrite{RawWrite: w}})
		return err
	case rawGet:
		get := &pb.RawGetRequest{Cells: []*pb.Cell{g.cell(at)}}
		r, err := g.send(ctx, g.gets, &pb.TabletRequest{Op: &pb.TabletRequest_RawGet{RawGet: get}})
		if err == nil && !r.GetRawGet().GetValues()[0].GetFound() {
			err = errors.New("a raw get found no value in a cell that was written")
		}
		return err
	case readTxn:
		return g.one.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			_, ok, err := tx.Get(ctx, rowName(at), column)
			if err == nil && !ok {
				err = errors.New("a read found no value in a cell that was written")
			}
			return err
		})
	case onePhase:
		return g.transact(ctx, g.one, caller, at, i)
	default:
		return g.transact(ctx, g.two, caller, at, i)
	}
}

func (g *rig) transact(ctx context.Context, db *percolator.DB, caller, at, i int) error {
	if err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set(rowName(at), column, g.value(int64(i)))
		return nil
	}); err != nil {
		return err
	}
	g.last[caller].Store(int64(at)<<32 | int64(i))
	return nil
}

// verify checks that each caller's last committed write is the value of its row.
func (g *rig) verify(ctx context.Context, callers int) error {
	return g.one.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		for caller := range callers {
			last := g.last[caller].Load()
			row, want := rowName(int(last>>32)), g.value(last&math.MaxUint32)
			if got, _, err := tx.Get(ctx, row, column); err != nil {
				return err
			} else if !bytes.Equal(got, want) {
				return fmt.Errorf("%s has the value %q instead of %q, which was committed last", row, got, want)
			}
		}
		return nil
	})
}

func (g *rig) close() (err error) {
	for _, end := range slices.Backward(g.ends) {
		err = errors.Join(err, end())
	}
	return err
}
