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

// machine holds a node's store: after a crash of the process, the next one opens its remains.
type machine struct {
	c       *Cluster
	index   int
	store   atomic.Pointer[store.Store]
	crashes atomic.Uint64 // number of crashes and stops so far
	skew    time.Duration // of its clock
	speed   float64       // of the clock that times its promises; 1 is that of the simulation

	// turn holds a token while a process is started or ended. Not a mutex, because virtual time does
	// not advance while a goroutine waits for one.
	turn chan struct{}
	life atomic.Pointer[life]
}

// life is one process of a node.
type life struct {
	m         *machine
	node      atomic.Pointer[node.Node] // nil while it starts
	transport txn.Transport             // the node's own; set before node
	ctx       context.Context           // ends with the process
	kill      context.CancelFunc
	unplugged atomic.Bool   // the process dies by a power loss
	gone      chan struct{} // closed when all its goroutines have ended
}

// uptime is the clock of the machine's promises to others. Its speed differs from the others'.
func (m *machine) uptime() time.Duration {
	return time.Duration(float64(time.Since(m.c.began)) * m.speed)
}

var errDead = errors.New("simtest: the process is dead")

// firstPort is the port of the first node's address.
const firstPort = 1000

func addressOf(index int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+index))
}

func indexOf(addr string) int {
	_, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	return n - firstPort
}

// up returns the process if it serves, else nil.
func (m *machine) up() *life {
	l := m.life.Load()
	if l == nil || l.node.Load() == nil || l.ctx.Err() != nil {
		return nil
	}
	return l
}

// start starts a process, unless one runs or the simulation is over, and returns when it serves or has
// died.
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
		Uptime:  m.uptime,
		Link: func(self peer.Self) (peer.Link, error) {
			return m.c.network.link(self.NodeID, m.index), nil
		},
		Members: func(self cluster.Member) (cluster.Members, error) {
			return m.c.gossip.join(m.index, self), nil
		},
		Contact: func(listen string, membership pb.MembershipServer) join.Contact {
			return m.c.contacts.open(m.index, listen, membership)
		},
		Transport: func(t txn.Transport) txn.Transport { l.transport = t; return mortal{t, l} },
	})
	if err != nil {
		m.c.gossip.leave(m.index)
		killed := l.ctx.Err() != nil // by crash, during the start
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
		return fmt.Errorf("simtest: start node %d: %w", m.index, err)
	}
	l.node.Store(n)
	m.c.running.Go(func() { m.checkpoint(l) })
	if l.ctx.Err() != nil {
		return m.joinGoroutines(l)
	}
	return nil
}

// crash kills the process, with unplug by a power loss: from now on it neither sends nor receives.
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
		<-l.gone // start cleans up, then closes it
		return nil
	}
	return m.joinGoroutines(l)
}

// joinGoroutines waits for the goroutines of a dead process, and reopens what it left of its store.
func (m *machine) joinGoroutines(l *life) error {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	if m.life.Load() != l {
		return nil
	}
	began := time.Now()
	err := m.reopen(l.unplugged.Load(), func() {
		_ = l.node.Load().Close(l.ctx) // fails, because ctx has ended
	})
	m.life.Store(nil)
	close(l.gone)
	if took := time.Since(began); took > closePatience {
		err = errors.Join(err, fmt.Errorf(
			"simtest: node %d: the goroutines of a dead process ended only after %v", m.index, took))
	}
	return err
}

// reopen replaces the machine's store by the remains of a crash at this moment, once end has stopped
// its users.
func (m *machine) reopen(unplugged bool, end func()) error {
	var dice *rand.Rand
	if n := m.crashes.Add(1); unplugged {
		dice = rand.New(rand.NewPCG(m.c.seed, 200+uint64(m.index)+n*16))
	}
	was := m.store.Load()
	left, err := was.Reopen(dice)
	end()
	if err == nil {
		m.store.Store(left)
		err = was.Close()
	}
	if err != nil {
		return fmt.Errorf("simtest: node %d: reopen its store: %w", m.index, err)
	}
	return nil
}

// checkpoint makes checkpoints of the store at random times, in addition to its own, as long as the
// process lives.
func (m *machine) checkpoint(l *life) {
	rng := rand.New(rand.NewPCG(m.c.seed, 400+uint64(m.index)))
	st := m.store.Load()
	for sleep(l.ctx, between(rng, 10*time.Millisecond, longestCheckpoint)) {
		if err := st.Checkpoint(); err != nil && l.ctx.Err() == nil {
			m.c.fail(fmt.Errorf("simtest: node %d: checkpoint: %w", m.index, err))
		}
	}
}

// longestCheckpoint is the maximum time between two checkpoints.
const longestCheckpoint = 5 * time.Second

// stop stops the process. A crash during that ends it, and determines the remains of the store.
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

// closePatience limits the end of a node.
const closePatience = 30 * time.Second

// admin returns an operator's client of the node.
func (l *life) admin() pb.AdminClient { return pb.NewAdminClient(l.transport.AdminConn()) }

// mortal is the node's own transport. It drops the requests of a dead process to tablets.
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
