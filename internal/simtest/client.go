package simtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// Client is a client in its own process, as after Dial: it uses one node, and the next one when that
// fails. The simulated network delays or loses its messages, and duplicates requests to tablets; a
// duplicate arrives 20 ms to 2 s later. It may be killed.
type Client struct {
	c      *Cluster
	client *txn.Client
	worker mvcc.Worker
	at     atomic.Int64 // index of the node that it uses, modulo their number
	dead   atomic.Bool

	mu  sync.Mutex
	rng *rand.Rand
}

var _ txn.Transport = (*Client)(nil)

// Client returns a new client and its database handle.
func (c *Cluster) Client(number int) (*Client, *percolator.DB) {
	rng := rand.New(rand.NewPCG(c.seed, 100+uint64(number)))
	t := &Client{c: c, rng: rng, worker: mvcc.Worker{Incarnation: 1<<40 + uint64(number)}}
	t.at.Store(int64(number))
	cfg := txn.Config{LockTTL: lockTTL, Logger: c.logger("client", number)}
	if number%3 == 1 { // a third of the clients give up on a commit's unknown outcome after 100 ms
		cfg.SettleTimeout = 100 * time.Millisecond
	}
	async := number%4 != 3 // a quarter commit as with nodes of an older version
	cfg.AsyncCommits = func() bool { return async }
	t.client = txn.NewClient(t, cfg)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients = append(c.clients, t)
	return t, handle.NewDB(t.client)
}

// freshClients is the first number of the clients that are used once.
const freshClients = 100_000

// fresh returns a client of a process that has just started: it has received no timestamp yet, and so
// cannot detect one that was issued before. done closes it.
func (c *Cluster) fresh() (db *percolator.DB, done func()) {
	c.mu.Lock()
	c.fresher++
	number := freshClients + c.fresher
	c.mu.Unlock()
	t, db := c.Client(number)
	return db, func() { c.leave(t) }
}

// leave closes a client and forgets it.
func (c *Cluster) leave(t *Client) {
	c.fail(t.client.Close())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients = slices.DeleteFunc(c.clients, func(other *Client) bool { return other == t })
}

// Die kills the client: it sends nothing more.
func (t *Client) Die() { t.dead.Store(true) }

var errLostAnswer = errors.New("simtest: the answer was lost")

func (t *Client) chance(p float64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rng.Float64() < p
}

// second returns the delay of an operation's duplicate, or 0 for none.
func (t *Client) second() time.Duration {
	t.c.network.mu.Lock()
	double := t.c.network.weather.double()
	t.c.network.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rng.Float64() >= double {
		return 0
	}
	return between(t.rng, minLate, maxLate)
}

// travel simulates the network for one message: it waits for its delay, or fails if it is lost.
func (t *Client) travel(ctx context.Context) error {
	t.mu.Lock()
	t.c.network.mu.Lock()
	w := t.c.network.weather
	t.c.network.mu.Unlock()
	d := 100*time.Microsecond + time.Duration(t.rng.Int64N(int64(w.Delay)))
	lost := t.rng.Float64() < w.Drop
	t.mu.Unlock()
	if lost {
		d = connectionTimeout // a connection retransmits lost data until it times out
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	if lost {
		return errLostAnswer
	}
	return nil
}

// connectionTimeout is the timeout of a client's connection.
const connectionTimeout = time.Second

// reach returns the process of the node that the client uses.
func (t *Client) reach() (*life, error) {
	machines := t.c.list()
	at := t.at.Load()
	m := machines[int(at)%len(machines)]
	if t.dead.Load() {
		return nil, fmt.Errorf("%w: %w", txn.ErrNotSent, errDead)
	}
	if l := m.up(); l != nil {
		return l, nil
	}
	t.avoid(at)
	return nil, fmt.Errorf("%w: %w: node %d does not answer", txn.ErrNotSent, txn.ErrUnavailable,
		m.index)
}

func (t *Client) avoid(at int64) { t.at.CompareAndSwap(at, at+1) }

// ask sends a request to the client's node and returns the answer. After an error the request may
// have been executed, unless the error wraps txn.ErrNotSent.
func ask[A any](ctx context.Context, t *Client,
	question func(context.Context, txn.Transport) (A, error)) (A, error) {
	var none A
	at := t.at.Load()
	if err := t.travel(ctx); err != nil {
		t.avoid(at)
		return none, fmt.Errorf("%w: %w: %w", txn.ErrNotSent, txn.ErrUnavailable, err)
	}
	l, err := t.reach()
	if err != nil {
		return none, err
	}
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	t.c.network.awaken(both, l.m.index)
	a, err := question(both, l.transport)
	t.c.network.awaken(both, l.m.index)
	if l.ctx.Err() != nil || t.dead.Load() {
		t.avoid(at)
		return none, fmt.Errorf("%w: %w", txn.ErrUnavailable, errDead)
	}
	if back := t.travel(ctx); back != nil {
		t.avoid(at)
		return none, fmt.Errorf("%w: %w", txn.ErrUnavailable, back)
	}
	return a, err
}

// Send implements txn.Transport.
func (t *Client) Send(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if req.GetCommit() != nil {
		if err := t.hesitate(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", txn.ErrNotSent, err)
		}
	}
	req = proto.CloneOf(req)
	if late := t.second(); late > 0 {
		t.c.running.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), late+connectionTimeout)
			defer cancel()
			sleep(ctx, late)
			_, _ = ask(ctx, t, func(ctx context.Context, to txn.Transport) (*pb.TabletResponse,
				error) {
				return to.Send(ctx, d, req)
			})
		})
	}
	r, err := ask(ctx, t, func(ctx context.Context, to txn.Transport) (*pb.TabletResponse, error) {
		return to.Send(ctx, d, req)
	})
	if err != nil {
		return nil, err
	}
	return proto.CloneOf(r), nil
}

// Timestamps implements txn.Transport.
func (t *Client) Timestamps(ctx context.Context, count int) (mvcc.Timestamp, int, error) {
	type answer struct {
		first mvcc.Timestamp
		n     int
	}
	a, err := ask(ctx, t, func(ctx context.Context, to txn.Transport) (answer, error) {
		first, n, err := to.Timestamps(ctx, count)
		return answer{first, n}, err
	})
	return a.first, a.n, err
}

// Locate implements txn.Transport.
func (t *Client) Locate(ctx context.Context, table mvcc.TableID, row string,
	limit int) ([]*pb.TabletDescriptor, error) {
	return ask(ctx, t, func(ctx context.Context, to txn.Transport) ([]*pb.TabletDescriptor, error) {
		return to.Locate(ctx, table, row, limit)
	})
}

// CreateTable implements txn.Transport.
func (t *Client) CreateTable(ctx context.Context, req *pb.CreateTableRequest) (*pb.Table, error) {
	return ask(ctx, t, func(ctx context.Context, to txn.Transport) (*pb.Table, error) {
		return to.CreateTable(ctx, req)
	})
}

// DropTable implements txn.Transport.
func (t *Client) DropTable(ctx context.Context, name string, id mvcc.TableID) error {
	_, err := ask(ctx, t, func(ctx context.Context, to txn.Transport) (struct{}, error) {
		return struct{}{}, to.DropTable(ctx, name, id)
	})
	return err
}

// Tables implements txn.Transport.
func (t *Client) Tables(ctx context.Context) ([]*pb.Table, error) {
	return ask(ctx, t, func(ctx context.Context, to txn.Transport) ([]*pb.Table, error) {
		return to.Tables(ctx)
	})
}

// Catalogue implements txn.Transport.
func (t *Client) Catalogue(ctx context.Context) (*pb.Catalogue, error) {
	return ask(ctx, t, func(ctx context.Context, to txn.Transport) (*pb.Catalogue, error) {
		return to.Catalogue(ctx)
	})
}

// SplitTablet implements txn.Transport.
func (t *Client) SplitTablet(ctx context.Context, table, row string) error {
	_, err := ask(ctx, t, func(ctx context.Context, to txn.Transport) (struct{}, error) {
		return struct{}{}, to.SplitTablet(ctx, table, row)
	})
	return err
}

// WorkerDead implements txn.Transport.
func (t *Client) WorkerDead(ctx context.Context, w mvcc.Worker) bool {
	if w.Node == 0 {
		return false
	}
	dead, err := ask(ctx, t, func(ctx context.Context, to txn.Transport) (bool, error) {
		return to.WorkerDead(ctx, w), nil
	})
	return err == nil && dead
}

// NodeStatus implements txn.Transport.
func (t *Client) NodeStatus(ctx context.Context) (*pb.NodeStatusResponse, error) {
	return ask(ctx, t, func(ctx context.Context, to txn.Transport) (*pb.NodeStatusResponse, error) {
		return to.NodeStatus(ctx)
	})
}

// Worker implements txn.Transport. Gossip does not include clients.
func (t *Client) Worker() mvcc.Worker { return t.worker }

// Observers implements txn.Transport.
func (t *Client) Observers(ctx context.Context) ([]*pb.ObserverState, error) {
	return ask(ctx, t, func(ctx context.Context, to txn.Transport) ([]*pb.ObserverState, error) {
		return to.Observers(ctx)
	})
}

// HoldHistory implements txn.Transport.
func (t *Client) HoldHistory(ctx context.Context,
	req *pb.HoldHistoryRequest) (*pb.HoldHistoryResponse, error) {
	return ask(ctx, t, func(ctx context.Context, to txn.Transport) (*pb.HoldHistoryResponse,
		error) {
		return to.HoldHistory(ctx, req)
	})
}

// AdminConn implements txn.Transport.
func (t *Client) AdminConn() grpc.ClientConnInterface { return adminConn{t} }

// adminConn sends calls of the service Admin over the simulated network.
type adminConn struct{ t *Client }

// Invoke implements grpc.ClientConnInterface.
func (a adminConn) Invoke(ctx context.Context, method string, req, resp any,
	opts ...grpc.CallOption) error {
	_, err := ask(ctx, a.t, func(ctx context.Context, to txn.Transport) (struct{}, error) {
		return struct{}{}, to.AdminConn().Invoke(ctx, method, req, resp, opts...)
	})
	return err
}

// NewStream implements grpc.ClientConnInterface. It returns an error: the service has no streams.
func (adminConn) NewStream(context.Context, *grpc.StreamDesc, string,
	...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("simtest: no streams")
}

// Close implements txn.Transport.
func (t *Client) Close() error { return nil }
