package rpc

import (
	"context"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// Direct connections of a client to the nodes that lead tablets. A node that forwards an operation
// names the leader's address in its answer; the client then sends the tablet's operations there,
// which saves a hop between nodes. No caller waits for a direct connection: until it is
// established, after it is lost, and while its node does not answer, operations go to the address
// in use, whose node forwards them.

const (
	maxDirect  = 64      // maximum number of direct connections
	maxLeaders = 1 << 16 // maximum number of tablets whose leader is remembered
	// directRetry is the time during which an address is not used after a failure.
	directRetry = 5 * time.Second
)

// leaders are the direct connections of a client. All methods are safe for concurrent use. A nil
// *leaders has no connection and learns none.
type leaders struct {
	dial    func(addr string, opts ...grpc.DialOption) (*grpc.ClientConn, error)
	net     func(ctx context.Context, addr string) (net.Conn, error)
	cluster string // id of the cluster of the address in use
	cfg     ClientConfig
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.RWMutex
	direct map[string]*direct // by address
	of     map[uint64]*direct // by tablet
	closed bool
}

// direct is the address of a node that leads tablets, and the connection to it.
type direct struct {
	addr  string
	link  atomic.Pointer[link] // nil unless connected to a node of the cluster
	avoid atomic.Int64         // the address is not used before this time, in Unix nanoseconds
}

func newLeaders(cfg ClientConfig, cluster string,
	dial func(string, ...grpc.DialOption) (*grpc.ClientConn, error)) *leaders {
	l := &leaders{
		dial: dial, cluster: cluster, cfg: cfg, direct: map[string]*direct{},
		of: map[uint64]*direct{},
		net: func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		},
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

func (d *direct) avoided() bool { return time.Now().UnixNano() < d.avoid.Load() }

func (d *direct) fail() { d.avoid.Store(time.Now().Add(directRetry).UnixNano()) }

// link returns the connection to the leader of the tablet, or nil.
func (l *leaders) link(tablet uint64) *link {
	if l == nil {
		return nil
	}
	d := l.leader(tablet)
	if d == nil || d.avoided() {
		return nil
	}
	found := d.link.Load()
	if found == nil || found.conn.GetState() != connectivity.Ready {
		return nil
	}
	return found
}

func (l *leaders) leader(tablet uint64) *direct {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.of[tablet]
}

// learn records the address of a tablet's leader, as named by an answer over the link; "" means
// that the node that answered leads the tablet, or knows no leader.
func (l *leaders) learn(tablet uint64, addr string, by *link) {
	if l == nil {
		return
	}
	d := l.leader(tablet)
	switch {
	case d == nil && addr == "", d != nil && d.addr == addr && d.link.Load() != nil:
		return
	case d != nil && addr == "" && d.link.Load() == by:
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, tablet)
	if addr == "" || l.closed || len(l.of) >= maxLeaders || CheckAddress(addr) != nil {
		return
	}
	d = l.direct[addr]
	if d == nil {
		maps.DeleteFunc(l.direct, func(_ string, d *direct) bool {
			return len(l.direct) >= maxDirect && d.link.Load() == nil && !d.avoided()
		})
		if len(l.direct) >= maxDirect {
			return
		}
		d = &direct{addr: addr}
		l.direct[addr] = d
	}
	if d.avoided() {
		return
	}
	l.of[tablet] = d
	if d.link.Load() == nil {
		d.fail() // no other attempt until this one has succeeded, or for directRetry
		l.running.Go(func() { l.connect(d) })
	}
}

// connect connects to the address, and returns when the connection is lost. The address is used
// only if the node there belongs to the client's cluster: where the client is, an advertised
// address may lead to another node.
func (l *leaders) connect(d *direct) {
	conn, err := l.dial(d.addr, grpc.WithContextDialer(l.dialOnce()))
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, connectTimeout)
	status, err := pb.NewPercolatorClient(conn).NodeStatus(ctx, &pb.NodeStatusRequest{})
	cancel()
	if err != nil || status.ClusterId != l.cluster {
		_ = conn.Close()
		return
	}
	to := newLink(conn, d.addr, false, l.cfg)
	d.link.Store(to)
	d.avoid.Store(0)
	for conn.GetState() == connectivity.Ready && conn.WaitForStateChange(l.ctx, connectivity.Ready) {
	}
	d.fail()
	d.link.Store(nil)
	_ = to.close()
}

// dialOnce returns a dialer that connects once. A lost connection is not restored, because
// another cluster's node may listen at the address by then.
func (l *leaders) dialOnce() func(context.Context, string) (net.Conn, error) {
	var dialed atomic.Bool
	return func(ctx context.Context, addr string) (net.Conn, error) {
		if dialed.Swap(true) {
			return nil, txn.Errorf("%w: the connection was lost", txn.ErrUnavailable)
		}
		return l.net(ctx, addr)
	}
}

// failed reacts to a failure of an operation on the tablet over the link. After an answer that
// the node does not reach the leader, only the tablet's operations go to the address in use; after
// no answer, those of all tablets of this address do, for directRetry.
func (l *leaders) failed(tablet uint64, over *link, answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.of[tablet]
	delete(l.of, tablet)
	if !answered && d != nil && d.link.Load() == over {
		d.fail()
	}
}

// close ends all direct connections. Unanswered operations on them fail.
func (l *leaders) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.running.Wait()
}
