package notifytest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Cluster is a repository in memory: one view of all tablets, evaluated and applied under one lock, and an oracle.
type Cluster struct {
	listener atomic.Pointer[func(cells []mvcc.Cell)]

	mu      sync.Mutex
	view    *mvcc.MemView
	limits  mvcc.Limits
	tablets []*pb.TabletDescriptor // in range order
	tables  []*pb.Table
	last    mvcc.Timestamp // given out by the oracle
	dirty   cellIndex[mvcc.Notify]
	intents cellIndex[map[mvcc.Timestamp]mvcc.Intent]
	written uint64 // notify entries
	clears  uint64
	catalog *pb.Catalogue
}

// NewCluster returns an empty cluster with one tablet.
func NewCluster() *Cluster {
	return &Cluster{
		view: mvcc.NewMemView(), limits: mvcc.DefaultLimits(), catalog: &pb.Catalogue{},
		tablets: []*pb.TabletDescriptor{{TabletId: 2, Epoch: 1, StartTable: uint32(mvcc.FirstUserTable), EndUnbounded: true}},
		dirty:   newCellIndex[mvcc.Notify](), intents: newCellIndex[map[mvcc.Timestamp]mvcc.Intent](),
	}
}

// Observe marks a column as observed. The table must exist.
func (c *Cluster) Observe(table mvcc.TableID, column string, weak bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	how := mvcc.ObservedStrong
	if weak {
		how = mvcc.ObservedWeak
	}
	c.view.Columns[mvcc.ObservedColumn{Table: table, Column: column}] = how
}

// Notification is a cell's entry in the notify group.
func (c *Cluster) Notification(cell mvcc.Cell) (mvcc.Notify, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.dirty.cells[cell]
	return n, ok
}

// Mark writes an entry of the notify group directly: a replay, or what a crash has left.
func (c *Cluster) Mark(cell mvcc.Cell, n mvcc.Notify) {
	c.apply([]mvcc.Mutation{{Group: mvcc.GroupNotify, Cell: cell, Notify: &n}})
}

// Dirty is how many entries the notify group has.
func (c *Cluster) Dirty() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.dirty.cells)
}

// Now takes a timestamp of the oracle.
func (c *Cluster) Now() mvcc.Timestamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next(1)
}

// Transport is a connection to the cluster.
func (c *Cluster) Transport(worker mvcc.Worker) *Transport {
	return &Transport{cluster: c, worker: worker}
}

// next gives out n timestamps and returns the first. The caller holds mu.
func (c *Cluster) next(n int) mvcc.Timestamp {
	first := max(c.last+1, mvcc.TimestampAt(time.Now().UnixMilli()))
	c.last = first + mvcc.Timestamp(n) - 1
	return first
}

func (c *Cluster) apply(list []mvcc.Mutation) {
	c.mu.Lock()
	hints := c.applyLocked(list)
	c.mu.Unlock()
	c.hint(hints)
}

func (c *Cluster) hint(cells []mvcc.Cell) {
	if f := c.listener.Load(); f != nil && len(cells) > 0 {
		(*f)(cells)
	}
}

// Listen makes f hear of cells that have become dirty, outside of any lock; false if somebody does already.
func (c *Cluster) Listen(f func(cells []mvcc.Cell)) bool { return c.listener.CompareAndSwap(nil, &f) }

// applyLocked applies and returns what has become dirty by a change (not by a failed run).
func (c *Cluster) applyLocked(list []mvcc.Mutation) (hints []mvcc.Cell) {
	c.view.Apply(list)
	for _, m := range list {
		switch m.Group {
		case mvcc.GroupNotify:
			if m.Delete {
				c.dirty.remove(m.Cell)
				c.clears++
				continue
			}
			c.dirty.put(m.Cell, *m.Notify)
			c.written++
			if m.Notify.Attempts == 0 && m.Notify.ParkedTS == 0 {
				hints = append(hints, m.Cell)
			}
		case mvcc.GroupIntent:
			c.intent(m)
		}
	}
	return hints
}

func (c *Cluster) intent(m mvcc.Mutation) {
	of := c.intents.cells[m.Cell]
	if m.Delete {
		delete(of, m.TS)
		if len(of) == 0 {
			c.intents.remove(m.Cell)
		}
		return
	}
	if of == nil {
		of = map[mvcc.Timestamp]mvcc.Intent{}
	}
	of[m.TS] = *m.Intent
	c.intents.put(m.Cell, of)
}

// Tablets implements scanner.Places.
func (c *Cluster) Tablets(context.Context, bool) ([]*pb.TabletDescriptor, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*pb.TabletDescriptor(nil), c.tablets...), nil
}

// Transport is a txn.Transport to a Cluster.
type Transport struct {
	cluster *Cluster
	worker  mvcc.Worker
	// Intercept, if set before use, may answer a request instead of the cluster: it returns nil, nil to let it pass.
	Intercept func(ctx context.Context, req *pb.TabletRequest) (*pb.TabletResponse, error)
}

var _ txn.Transport = (*Transport)(nil)

// Send implements txn.Transport.
func (t *Transport) Send(ctx context.Context, d *pb.TabletDescriptor, req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if t.Intercept != nil {
		if resp, err := t.Intercept(ctx, req); resp != nil || err != nil {
			return resp, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return t.cluster.serve(d, req)
}

// Timestamps implements txn.Transport.
func (t *Transport) Timestamps(_ context.Context, count int) (mvcc.Timestamp, int, error) {
	t.cluster.mu.Lock()
	defer t.cluster.mu.Unlock()
	return t.cluster.next(count), count, nil
}

// Locate implements txn.Transport.
func (t *Transport) Locate(_ context.Context, table mvcc.TableID, row string, limit int) ([]*pb.TabletDescriptor, error) {
	c := t.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, d := range c.tablets {
		if wire.Holds(d, wire.Position{Table: table, Row: row}) {
			return append([]*pb.TabletDescriptor(nil), c.tablets[i:min(i+max(limit, 1), len(c.tablets))]...), nil
		}
	}
	return nil, nil
}

// CreateTable implements txn.Transport.
func (t *Transport) CreateTable(_ context.Context, name string, splitKeys []string) (*pb.Table, error) {
	c := t.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, table := range c.tables {
		if table.Name == name {
			return table, nil
		}
	}
	table := &pb.Table{Id: uint32(mvcc.FirstUserTable) + uint32(len(c.tables)), Name: name}
	c.tables = append(c.tables, table)
	c.split(wire.Position{Table: mvcc.TableID(table.Id)})
	for _, k := range splitKeys {
		c.split(wire.Position{Table: mvcc.TableID(table.Id), Row: k})
	}
	return table, nil
}

// split makes a boundary at p. Descriptors are replaced, never changed. The caller holds mu.
func (c *Cluster) split(p wire.Position) {
	for i, d := range c.tablets {
		if !wire.Holds(d, p) || wire.StartOf(d) == p {
			continue
		}
		left := &pb.TabletDescriptor{
			TabletId: d.TabletId, Epoch: d.Epoch + 1, StartTable: d.StartTable, StartRow: d.StartRow,
			EndTable: uint32(p.Table), EndRow: wire.Bytes(p.Row),
		}
		right := &pb.TabletDescriptor{
			TabletId: uint64(len(c.tablets)) + 2, Epoch: 1, StartTable: uint32(p.Table), StartRow: wire.Bytes(p.Row),
			EndTable: d.EndTable, EndRow: d.EndRow, EndUnbounded: d.EndUnbounded,
		}
		rest := append([]*pb.TabletDescriptor{left, right}, c.tablets[i+1:]...)
		c.tablets = append(append([]*pb.TabletDescriptor(nil), c.tablets[:i]...), rest...)
		return
	}
}

// DropTable implements txn.Transport; tables stay here.
func (t *Transport) DropTable(context.Context, string) error { return txn.ErrInvalid }

// Tables implements txn.Transport.
func (t *Transport) Tables(context.Context) ([]*pb.Table, error) {
	t.cluster.mu.Lock()
	defer t.cluster.mu.Unlock()
	return append([]*pb.Table(nil), t.cluster.tables...), nil
}

// Catalogue implements txn.Transport.
func (t *Transport) Catalogue(context.Context) (*pb.Catalogue, error) { return t.cluster.catalog, nil }

// SplitTablet implements txn.Transport.
func (t *Transport) SplitTablet(_ context.Context, table, row string) error {
	c := t.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, known := range c.tables {
		if known.Name == table {
			c.split(wire.Position{Table: mvcc.TableID(known.Id), Row: row})
			return nil
		}
	}
	return txn.ErrNoTable
}

// WorkerDead implements txn.Transport: nobody is known dead.
func (t *Transport) WorkerDead(context.Context, mvcc.Worker) bool { return false }

// NodeStatus implements txn.Transport.
func (t *Transport) NodeStatus(context.Context) (*pb.NodeStatusResponse, error) {
	return &pb.NodeStatusResponse{}, nil
}

// Worker implements txn.Transport.
func (t *Transport) Worker() mvcc.Worker { return t.worker }

// Close implements txn.Transport.
func (t *Transport) Close() error { return nil }

// Locked reports whether the cell has a lock, or, for a weak column, whether it has an intent.
func (c *Cluster) Locked(cell mvcc.Cell) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, locked := c.view.Lock(cell)
	return locked || len(c.intents.cells[cell]) > 0
}

// Fill puts committed values into the column of many rows at once, without marking them dirty.
func (c *Cluster) Fill(table mvcc.TableID, column string, rows int, name func(i int) string) {
	ts := c.Now()
	list := make([]mvcc.Mutation, rows)
	for i := range list {
		list[i] = mvcc.Mutation{
			Group: mvcc.GroupWrite, Cell: mvcc.Cell{Table: table, Row: name(i), Column: column},
			Write: &mvcc.Write{CommitTS: ts, StartTS: ts - 1, Kind: mvcc.KindPut},
		}
	}
	// In order, because the view keeps a sorted slice.
	slices.SortFunc(list, func(a, b mvcc.Mutation) int { return strings.Compare(a.Cell.Row, b.Cell.Row) })
	c.apply(list)
}
