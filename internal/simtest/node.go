package simtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/internal/nodeparts"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/store"
)

// machine is a place for a node: when the process dies, the next one has what a crash
// leaves of its store.
type machine struct {
	c       *Cluster
	index   int
	store   atomic.Pointer[store.Store]
	crashes atomic.Uint64 // so far
	skew    time.Duration // of its clock

	// holds a token while a process is started or ended: no mutex, for time stands still
	// while one is waited for
	turn chan struct{}
	life atomic.Pointer[life]
}

// life is one process of a node.
type life struct {
	m         *machine
	node      atomic.Pointer[node.Node] // nil: it is starting
	transport txn.Transport             // the node's own; set before node
	ctx       context.Context           // ends with the process
	kill      context.CancelFunc
	unplugged atomic.Bool   // it dies because its machine loses power
	gone      chan struct{} // closed when nothing of it is left
}

var errDead = errors.New("simtest: the process is dead")

// The nodes' addresses.
const firstPort = 1000

func addressOf(index int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+index))
}

func indexOf(addr string) int {
	_, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	return n - firstPort
}

// up is the process that serves; nil: there is none.
func (m *machine) up() *life {
	l := m.life.Load()
	if l == nil || l.node.Load() == nil || l.ctx.Err() != nil {
		return nil
	}
	return l
}

// start begins a process, unless one runs or the simulation is over, and returns when it
// serves or has died.
func (m *machine) start() error {
	m.turn <- struct{}{}
	if m.life.Load() != nil || m.c.over.Load() {
		<-m.turn
		return nil
	}
	l := &life{m: m, gone: make(chan struct{})}
	l.ctx, l.kill = context.WithCancel(context.Background())
	m.life.Store(l)
	m.c.network.set(func(n *network) { delete(n.down, m.index) })
	<-m.turn

	n, err := nodeparts.Open[node.Node](l.ctx, m.c.config(m.index), nodeparts.Parts{
		Store:   m.store.Load(),
		Stopped: func() bool { return m.c.network.isFrozen(m.index) },
		Clock:   func() time.Time { return time.Now().Add(m.skew) },
		Link: func(self peer.Self) (peer.Link, error) {
			return m.c.network.link(self.NodeID, m.index), nil
		},
		Members: func(self cluster.Member) (cluster.Members, error) {
			return m.c.gossip.join(m.index, self), nil
		},
		Contact: func(listen string, door pb.MembershipServer) join.Contact {
			return m.c.doors.open(m.index, listen, door)
		},
		Transport: func(t txn.Transport) txn.Transport { l.transport = t; return mortal{t, l} },
	})
	if err != nil {
		m.c.gossip.leave(m.index)
		killed := l.ctx.Err() != nil // while it started
		l.kill()
		var lost error
		if killed {
			lost = m.reopen(l.unplugged.Load(), func() {})
		}
		m.life.Store(nil)
		close(l.gone)
		if killed {
			return lost
		}
		return fmt.Errorf("simtest: node %d: %w", m.index, err)
	}
	l.node.Store(n)
	m.c.running.Go(func() { m.checkpoint(l) })
	if l.ctx.Err() != nil {
		return m.bury(l)
	}
	return nil
}

// crash ends the process as its death does: from now on nobody hears of it, and it hears
// of nobody. unplug: all of the machine loses power.
func (m *machine) crash(unplug bool) error {
	l := m.life.Load()
	if l == nil {
		return nil
	}
	m.c.network.set(func(n *network) { n.down[m.index] = true })
	m.c.gossip.leave(m.index)
	if unplug {
		l.unplugged.Store(true)
	}
	l.kill()
	if l.node.Load() == nil {
		<-l.gone // start finds out
		return nil
	}
	return m.bury(l)
}

// bury joins what is left of a dead process.
func (m *machine) bury(l *life) error {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	if m.life.Load() != l {
		return nil
	}
	began := time.Now()
	err := m.reopen(l.unplugged.Load(), func() {
		_ = l.node.Load().Close(l.ctx) // it could not finish anything, and says so
	})
	m.life.Store(nil)
	close(l.gone)
	if took := time.Since(began); took > closePatience {
		err = errors.Join(err, fmt.Errorf(
			"simtest: node %d: what was left of a dead process ended after %v", m.index, took))
	}
	return err
}

// reopen puts what a crash at this moment leaves of the machine's store in its place,
// once end has ended whoever uses it.
func (m *machine) reopen(unplugged bool, end func()) error {
	var dice *rand.Rand
	if n := m.crashes.Add(1); unplugged {
		dice = rand.New(rand.NewPCG(m.c.seed, 200+uint64(m.index)+n*maxNodes))
	}
	was := m.store.Load()
	left, err := was.Reopen(dice)
	end()
	if err == nil {
		m.store.Store(left)
		err = was.Close()
	}
	if err != nil {
		return fmt.Errorf("simtest: node %d: open its store again: %w", m.index, err)
	}
	return nil
}

// checkpoint makes checkpoints of the store at random times, more often than it does by
// itself, as long as the process lives.
func (m *machine) checkpoint(l *life) {
	rng := rand.New(rand.NewPCG(m.c.seed, 400+uint64(m.index)))
	st := m.store.Load()
	for sleep(l.ctx, between(rng, 10*time.Millisecond, longestCheckpoint)) {
		if err := st.Checkpoint(); err != nil && l.ctx.Err() == nil {
			m.c.fail(fmt.Errorf("simtest: node %d: checkpoint: %w", m.index, err))
		}
	}
}

// longestCheckpoint is the longest time between two checkpoints.
const longestCheckpoint = 5 * time.Second

// stop ends the process in good order. A crash meanwhile cuts it short, and is what the
// store goes through then: the process could not finish anything any more.
func (m *machine) stop() error {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	l := m.life.Load()
	if l == nil || l.node.Load() == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(l.ctx, closePatience)
	defer cancel()
	err := l.node.Load().Close(ctx)
	crashed := l.ctx.Err() != nil
	m.c.network.set(func(n *network) { n.down[m.index] = true })
	m.c.gossip.leave(m.index)
	l.kill()
	if crashed {
		err = m.reopen(l.unplugged.Load(), func() {})
	} else {
		// as Close and Open do
		err = errors.Join(err, m.store.Load().Checkpoint(), m.reopen(false, func() {}))
	}
	m.life.Store(nil)
	close(l.gone)
	if err != nil {
		return fmt.Errorf("simtest: close node %d: %w", m.index, err)
	}
	return nil
}

// closePatience is how long the end of a node may take.
const closePatience = 30 * time.Second

// admin makes an operator's calls of the node.
func (l *life) admin() pb.AdminClient { return pb.NewAdminClient(l.transport.AdminConn()) }

// mortal is the node's own transport: what a dead process sends, nobody gets.
type mortal struct {
	txn.Transport
	life *life
}

// Send implements txn.Transport.
func (t mortal) Send(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if t.life.ctx.Err() != nil {
		return nil, errDead
	}
	r, err := t.Transport.Send(ctx, d, req)
	if t.life.ctx.Err() != nil {
		return nil, errDead
	}
	return r, err
}
