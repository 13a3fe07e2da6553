package txntest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
	"github.com/percolator-go/percolator/internal/wire"
)

// Cluster is a database in memory. Its methods may be used concurrently.
type Cluster struct {
	mu        sync.Mutex
	view      *mvcctest.MemView
	announced []*pb.ObserverInfo // in the catalogue
	limits    mvcc.Limits
	tablets   []*pb.TabletDescriptor // sorted by start
	tables    []*pb.Table
	last      mvcc.Timestamp // last one issued by the oracle
	skew      time.Duration  // of the oracle's clock
	dead      map[mvcc.Worker]bool
	ops       int // operations evaluated

	origins       []mvcc.Timestamp // of the notifications written
	listener      func([]mvcc.Cell)
	recordedAbove mvcc.Timestamp // above it, tablets have recorded changes
}

// Listen calls f, without holding a lock, with cells that become dirty by a change but not by a failed
// run. It returns false if another listener is set.
func (c *Cluster) Listen(f func(cells []mvcc.Cell)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listener != nil {
		return false
	}
	c.listener = f
	return true
}

// Apply makes effects visible directly, without evaluating an operation.
func (c *Cluster) Apply(effects []mvcc.Mutation) {
	c.mu.Lock()
	after := c.apply(effects)
	c.mu.Unlock()
	after()
}

// apply is Apply for callers that hold mu. They must call after once they have released it.
func (c *Cluster) apply(effects []mvcc.Mutation) (after func()) {
	c.view.Apply(effects)
	var dirty []mvcc.Cell
	for _, m := range effects {
		if m.Group != mvcc.GroupNotify || m.Delete {
			continue
		}
		c.origins = append(c.origins, m.Notify.Origin())
		if m.Notify.Attempts == 0 && m.Notify.ParkedTS == 0 {
			dirty = append(dirty, m.Cell)
		}
	}
	f := c.listener
	if f == nil || len(dirty) == 0 {
		return func() {}
	}
	return func() { f(dirty) }
}

// Tablets returns the tablets of users' tables, in range order.
func (c *Cluster) Tablets() []*pb.TabletDescriptor {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.tablets[1:])
}

// New returns a cluster without tables: the meta tablet and one for all other rows.
func New() *Cluster {
	first := uint32(mvcc.FirstUserTable)
	return &Cluster{
		view: mvcctest.NewMemView(), limits: mvcc.DefaultLimits(), dead: map[mvcc.Worker]bool{},
		tablets: []*pb.TabletDescriptor{
			{TabletId: 1, Epoch: 1, EndTable: first},
			{TabletId: 2, Epoch: 1, StartTable: first, EndUnbounded: true},
		},
	}
}

// AddTable creates a table, or adds split keys to an existing one, and returns its id.
func (c *Cluster) AddTable(name string, splitKeys ...string) mvcc.TableID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return mvcc.TableID(c.addTable(name, splitKeys).Id)
}

func (c *Cluster) addTable(name string, splitKeys []string) *pb.Table {
	i := slices.IndexFunc(c.tables, func(t *pb.Table) bool {
		return t.Name == name && t.DroppedTs == 0
	})
	if i < 0 {
		i = len(c.tables)
		c.tables = append(c.tables, &pb.Table{
			Id: uint32(mvcc.FirstUserTable) + uint32(i), Name: name,
		})
		c.split(mvcc.TableID(c.tables[i].Id), "")
	}
	t := &pb.Table{Id: c.tables[i].Id, Name: name, SplitKeys: slices.Clone(c.tables[i].SplitKeys)}
	for _, k := range splitKeys {
		c.split(mvcc.TableID(t.Id), k)
		t.SplitKeys = append(t.SplitKeys, []byte(k))
	}
	c.tables[i] = t
	return t
}

// Split splits the tablet that holds the row in two, of which the second begins with the row.
func (c *Cluster) Split(table mvcc.TableID, row string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.split(table, row)
}

func (c *Cluster) split(table mvcc.TableID, row string) {
	at := wire.Position{Table: table, Row: row}
	i := c.find(at)
	d := c.tablets[i]
	if wire.StartOf(d) == at {
		return
	}
	left := &pb.TabletDescriptor{
		TabletId: d.TabletId, Epoch: d.Epoch + 1, StartTable: d.StartTable, StartRow: d.StartRow,
		EndTable: uint32(table), EndRow: []byte(row),
	}
	right := &pb.TabletDescriptor{
		TabletId: uint64(len(c.tablets) + 1), Epoch: d.Epoch + 1, StartTable: uint32(table),
		StartRow: []byte(row),
		EndTable: d.EndTable, EndRow: d.EndRow, EndUnbounded: d.EndUnbounded,
	}
	c.tablets = slices.Replace(slices.Clone(c.tablets), i, i+1, left, right)
}

func (c *Cluster) find(p wire.Position) int {
	return slices.IndexFunc(c.tablets, func(d *pb.TabletDescriptor) bool {
		return wire.Holds(d, p)
	})
}

// Observe makes a column observed.
func (c *Cluster) Observe(table mvcc.TableID, column string, how mvcc.Observed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view.Columns[mvcc.ObservedColumn{Table: table, Column: column}] = how
}

// Announce adds a weak observer of the column to the catalogue.
func (c *Cluster) Announce(table mvcc.TableID, column string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.announced = append(c.announced, &pb.ObserverInfo{
		Table: uint32(table), Column: wire.Bytes(column), Weak: true,
	})
}

// SetBound sets the bound below which reads are refused.
func (c *Cluster) SetBound(ts mvcc.Timestamp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view.BoundTS = ts
}

// RecordFrom makes tablets refuse requests for changes that begin below a timestamp.
func (c *Cluster) RecordFrom(ts mvcc.Timestamp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recordedAbove = ts
}

// Advance advances the oracle's clock.
func (c *Cluster) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew += d
}

// Kill declares the worker dead: WorkerDead returns true for it.
func (c *Cluster) Kill(w mvcc.Worker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead[w] = true
}

// Look calls f with the state, which f must not keep.
func (c *Cluster) Look(f func(v *mvcctest.MemView)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.view)
}

// Locks returns the number of locked cells of the table.
func (c *Cluster) Locks(table mvcc.TableID) int {
	n := 0
	c.Look(func(v *mvcctest.MemView) {
		for range v.Locks(mvcc.Span{Table: table}, false) {
			n++
		}
	})
	return n
}

// Operations returns the number of operations that tablets have evaluated.
func (c *Cluster) Operations() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ops
}

// next issues n timestamps. The caller holds mu.
func (c *Cluster) next(n int) mvcc.Timestamp {
	first := max(c.last+1, mvcc.TimestampAt(time.Now().Add(c.skew).UnixMilli()))
	c.last = first + mvcc.Timestamp(n-1)
	return first
}

// String returns the size of the cluster, for logs.
func (c *Cluster) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%d tablets, %d tables", len(c.tablets), len(c.tables))
}
