package txntest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Fault is the fault of one operation. The zero value is none.
type Fault struct {
	Before  func(ctx context.Context) // called first, to wait or to run something else
	After   func()                    // called after the operation, before its reply
	NotSent bool                      // the operation is lost, and the sender knows it
	Lost    bool                      // the operation is lost, and the sender does not know it
	Answer  *pb.Error                 // returned instead of executing the operation
	Twice   bool                      // a duplicate arrives 20 ms to 2 s later
	Reply   bool                      // the operation is executed, but its reply is lost
}

// Delay of an operation's duplicate.
const (
	minLate = 20 * time.Millisecond
	MaxLate = 2 * time.Second
)

// Process is the Transport of one process.
type Process struct {
	cluster *Cluster
	worker  mvcc.Worker
	hook    atomic.Pointer[func(*pb.TabletRequest) Fault]
	oracle  atomic.Pointer[func(count int) (mvcc.Timestamp, int, error)]
	sent    atomic.Int64
}

var _ txn.Transport = (*Process)(nil)

// ErrLost is the error of an operation without an answer.
var ErrLost = errors.New("txntest: reply lost")

// Process returns the transport of a process. A worker with node 0 is a remote client.
func (c *Cluster) Process(node, incarnation uint64) *Process {
	return &Process{cluster: c, worker: mvcc.Worker{Node: node, Incarnation: incarnation}}
}

// Inject sets the function that returns the fault of every further operation; nil means no faults.
func (p *Process) Inject(f func(*pb.TabletRequest) Fault) {
	if f == nil {
		p.hook.Store(nil)
		return
	}
	p.hook.Store(&f)
}

// Oracle replaces the oracle for this process; nil restores it.
func (p *Process) Oracle(f func(count int) (mvcc.Timestamp, int, error)) {
	if f == nil {
		p.oracle.Store(nil)
		return
	}
	p.oracle.Store(&f)
}

// Sent returns the number of operations sent.
func (p *Process) Sent() int { return int(p.sent.Load()) }

// Send implements txn.Transport.
func (p *Process) Send(ctx context.Context, _ *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	p.sent.Add(1)
	var f Fault
	if hook := p.hook.Load(); hook != nil {
		f = (*hook)(req)
	}
	if f.Before != nil {
		f.Before(ctx)
	}
	if f.NotSent {
		return nil, txn.ErrNotSent
	}
	if f.Twice {
		time.AfterFunc(minLate+rand.N(MaxLate-minLate), func() { p.cluster.evaluate(req) })
	}
	switch {
	case f.Lost:
		return nil, ErrLost
	case f.Answer != nil:
		return &pb.TabletResponse{Error: f.Answer}, nil
	}
	resp := p.cluster.evaluate(req)
	if f.After != nil {
		f.After()
	}
	if f.Reply {
		return nil, ErrLost
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return wire.Capped(req, resp), nil
}

// Timestamps implements txn.Transport.
func (p *Process) Timestamps(ctx context.Context, count int) (mvcc.Timestamp, int, error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	if f := p.oracle.Load(); f != nil {
		return (*f)(count)
	}
	return p.cluster.Timestamps(count), count, nil
}

// Timestamps issues n timestamps and returns the first.
func (c *Cluster) Timestamps(n int) mvcc.Timestamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next(n)
}

// Locate implements txn.Transport.
func (p *Process) Locate(_ context.Context, table mvcc.TableID, row string,
	limit int) ([]*pb.TabletDescriptor, error) {
	c := p.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.find(wire.Position{Table: table, Row: row})
	return slices.Clone(c.tablets[i:min(len(c.tablets), i+limit)]), nil
}

// CreateTable implements txn.Transport.
func (p *Process) CreateTable(_ context.Context, req *pb.CreateTableRequest) (*pb.Table, error) {
	p.cluster.mu.Lock()
	defer p.cluster.mu.Unlock()
	var keys []string
	for _, key := range req.SplitKeys {
		keys = append(keys, string(key))
	}
	return p.cluster.addTable(req.Name, keys), nil
}

// DropTable implements txn.Transport. It succeeds if the table has already been dropped.
func (p *Process) DropTable(_ context.Context, name string, id mvcc.TableID) error {
	c := p.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, t := range c.tables {
		if id == 0 || t.Id != uint32(id) || t.Name != name {
			continue
		}
		if t.DroppedTs == 0 {
			c.tables[i] = &pb.Table{Id: t.Id, Name: t.Name, DroppedTs: uint64(c.next(1))}
		}
		return nil
	}
	return &txn.ServerError{Code: pb.Error_CODE_NO_TABLE, Message: name}
}

// Tables implements txn.Transport. The result includes dropped tables.
func (p *Process) Tables(context.Context) ([]*pb.Table, error) {
	p.cluster.mu.Lock()
	defer p.cluster.mu.Unlock()
	return slices.Clone(p.cluster.tables), nil
}

// Catalogue implements txn.Transport. The result contains the announced observers.
func (p *Process) Catalogue(context.Context) (*pb.Catalogue, error) {
	p.cluster.mu.Lock()
	defer p.cluster.mu.Unlock()
	return &pb.Catalogue{Observers: slices.Clone(p.cluster.announced)}, nil
}

// SplitTablet implements txn.Transport.
func (p *Process) SplitTablet(_ context.Context, table, row string) error {
	c := p.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tables {
		if t.Name == table && t.DroppedTs == 0 {
			c.split(mvcc.TableID(t.Id), row)
			return nil
		}
	}
	return &txn.ServerError{Code: pb.Error_CODE_NO_TABLE, Message: table}
}

// WorkerDead reports whether Kill was called for the worker.
func (p *Process) WorkerDead(_ context.Context, w mvcc.Worker) bool {
	p.cluster.mu.Lock()
	defer p.cluster.mu.Unlock()
	return p.cluster.dead[w]
}

// NodeStatus returns an almost empty status.
func (p *Process) NodeStatus(context.Context) (*pb.NodeStatusResponse, error) {
	return &pb.NodeStatusResponse{ClusterId: "txntest"}, nil
}

var errNoMeta = &txn.ServerError{
	Code: pb.Error_CODE_UNAVAILABLE, Message: "txntest: no meta",
}

// Observers always fails.
func (p *Process) Observers(context.Context) ([]*pb.ObserverState, error) { return nil, errNoMeta }

// HoldHistory always fails.
func (p *Process) HoldHistory(context.Context,
	*pb.HoldHistoryRequest) (*pb.HoldHistoryResponse, error) {
	return nil, errNoMeta
}

// AdminConn returns a connection without an admin service: every call fails.
func (p *Process) AdminConn() grpc.ClientConnInterface { return noAdmin{} }

type noAdmin struct{}

func (noAdmin) Invoke(context.Context, string, any, any, ...grpc.CallOption) error { return errNoMeta }

func (noAdmin) NewStream(context.Context, *grpc.StreamDesc, string,
	...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errNoMeta
}

// Worker returns the identity of the process in its locks.
func (p *Process) Worker() mvcc.Worker { return p.worker }

// Close does nothing.
func (p *Process) Close() error { return nil }
