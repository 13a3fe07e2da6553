package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/version"
)

// Config configures a Gossip.
type Config struct {
	// ClusterID: members of another cluster are refused.
	ClusterID string
	// Self is what this node says of itself at first. Self.Gossip is the address at which
	// others reach it, by default the one that the Listener bound.
	Self cluster.Member
	// Certs is the folder that holds the gossip keys (internal/certs). They are read
	// again while the node runs. Empty: plain.
	Certs string
	// Known returns the gossip addresses of nodes that may be alive, such as the node
	// table's. Those at which no member is known are asked now and then to take this node
	// in. Known must not block; it may be nil.
	Known func() []string
	// Gate says which versions the cluster has agreed on: members whose builds do not work
	// with them are refused. Nil: none are.
	Gate *version.Gate
	// Replaced is called once, on the watchers' goroutine, when a later incarnation of this
	// node has come alive: a process on a copy of its directory, or on the directory itself
	// after it was taken from this process. This process must then end.
	Replaced func(by cluster.Member)
	// Timing is for tests; the zero value suits a cluster.
	Timing Timing
	Logger *slog.Logger // nil: discarded
}

// Timing holds gossip's intervals and timeouts. Zero fields take the defaults, with which a
// death is noticed after about a second.
type Timing struct {
	// Probe is the interval between two probes by one member; default 200 ms.
	Probe time.Duration
	// ProbeTimeout is the wait for an answer before others are asked to probe; default
	// 100 ms.
	ProbeTimeout time.Duration
	// Gossip is the interval between two rounds of gossip; default 500 ms. Probes carry
	// gossip as well.
	Gossip time.Duration
	// PushPull is the interval between two exchanges of the whole state with one member;
	// default 5 s.
	PushPull time.Duration
	// Update is the least time between two changes of what this node says of itself;
	// default 1 s.
	Update time.Duration
	// Rejoin is the interval between two attempts to reach known nodes that are no members;
	// default 5 s. A node that is alone takes a tenth of it.
	Rejoin time.Duration
	// Keys is the interval between two reads of the keys; default 5 s.
	Keys time.Duration
}

func (t Timing) withDefaults() Timing {
	return Timing{
		Probe:        cmp.Or(t.Probe, 200*time.Millisecond),
		ProbeTimeout: cmp.Or(t.ProbeTimeout, 100*time.Millisecond),
		Gossip:       cmp.Or(t.Gossip, 500*time.Millisecond),
		PushPull:     cmp.Or(t.PushPull, 5*time.Second),
		Update:       cmp.Or(t.Update, time.Second), Rejoin: cmp.Or(t.Rejoin, 5*time.Second),
		Keys: cmp.Or(t.Keys, 5*time.Second),
	}
}

// Gossip is this node's membership. Its methods may be used concurrently.
//
// Reads use the table alone and never wait for memberlist. Four goroutines run from Open to
// Close (upkeep.go): one calls watchers, one spreads changes of what this node says of
// itself, one looks for missing members, and one reads the keys again. memberlist has
// goroutines of its own and calls back mostly under its lock (delegates.go). The mutex
// guards self.
type Gossip struct {
	cfg    Config
	hash   uint64
	listen *Listener
	ring   *memberlist.Keyring // nil: plain
	list   *memberlist.Memberlist
	table  *table
	faults *faultLog

	mu    sync.Mutex
	self  cluster.Member
	dirty chan struct{} // one token when self has changed

	// once lets the first report of a later incarnation into replaced.
	once     sync.Once
	replaced chan cluster.Member
	closed   atomic.Bool
	life     context.Context
	end      context.CancelFunc
	done     sync.WaitGroup
}

var _ cluster.Members = (*Gossip)(nil)

// Open starts to gossip over the listener, which it owns from then on. It does not wait
// for other nodes. Errors: ErrKeys, ErrTooLong.
func Open(cfg Config, l *Listener) (*Gossip, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Timing = cfg.Timing.withDefaults()
	cfg.Self.Gossip = cmp.Or(cfg.Self.Gossip, l.Addr())
	if cfg.Self.NodeID == 0 || cfg.Self.Incarnation == 0 || cfg.ClusterID == "" {
		return nil, errors.New("gossip: a member has a cluster, a node id and an incarnation")
	}
	if err := fits(cfg.Self); err != nil {
		return nil, err
	}
	g := &Gossip{
		cfg: cfg, hash: clusterHash(cfg.ClusterID), listen: l, table: newTable(cfg.Self),
		faults: &faultLog{logger: cfg.Logger},
		self:   cfg.Self, dirty: make(chan struct{}, 1), replaced: make(chan cluster.Member, 1),
	}
	g.life, g.end = context.WithCancel(context.Background())
	conf, err := g.memberlist()
	if err != nil {
		return nil, err
	}
	if g.list, err = memberlist.Create(conf); err != nil {
		err = fmt.Errorf("gossip: %w", err)
		if strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) { // it passes on only the text
			err = coded.Mark(err, syscall.EADDRINUSE)
		}
		return nil, err
	}
	for _, work := range []func(){g.deliver, g.refresh, g.rejoin, g.rereadKeys} {
		g.done.Go(work)
	}
	return g, nil
}

// memberlist returns the configuration of memberlist, and reads the keys.
func (g *Gossip) memberlist() (*memberlist.Config, error) {
	ip, port, err := resolve(g.cfg.Self.Gossip)
	if err != nil {
		return nil, err
	}
	// To other nodes such an address would mean themselves.
	if ip.IsUnspecified() || port == 0 {
		return nil, fmt.Errorf("gossip: %s is no address that others can reach; advertise one",
			g.cfg.Self.Gossip)
	}
	if g.cfg.Certs != "" {
		keys, err := readKeys(g.cfg.Certs)
		if err != nil {
			return nil, err
		}
		if g.ring, err = memberlist.NewKeyring(keys, keys[0]); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrKeys, err)
		}
	}
	t := g.cfg.Timing
	c := memberlist.DefaultLANConfig()
	// One memberlist member for each incarnation, see the package's documentation.
	c.Name = nameOf(workerOf(g.cfg.Self))
	c.Transport, c.Keyring = g.listen, g.ring
	c.AdvertiseAddr, c.AdvertisePort = ip.String(), port
	c.BindPort = g.listen.GetAutoBindPort()
	// Pings are too small to gain from compression, which was an eighth of an idle node's
	// work.
	c.EnableCompression = false
	c.ProbeInterval, c.ProbeTimeout, c.GossipInterval, c.PushPullInterval = t.Probe, t.ProbeTimeout,
		t.Gossip, t.PushPull
	// Suspicion is shorter than memberlist's default, so that a death is noticed after
	// about a second.
	c.SuspicionMult, c.SuspicionMaxTimeoutMult, c.RetransmitMult = 3, 2, 4
	c.TCPTimeout = 2 * time.Second
	c.Logger = slog.NewLogLogger(newLibraryLog(g.cfg.Logger), slog.LevelInfo)
	c.Delegate, c.Events, c.Merge, c.Alive, c.Conflict = delegate{g}, events{g}, admission{g},
		admission{g}, admission{g}
	return c, nil
}

// nameOf returns the name of an incarnation in memberlist.
func nameOf(w mvcc.Worker) string { return fmt.Sprintf("%016x-%d", w.Node, w.Incarnation) }

// Addr returns where others reach this node's gossip.
func (g *Gossip) Addr() string { return g.cfg.Self.Gossip }

// Alive implements cluster.Members.
func (g *Gossip) Alive() []cluster.Member { return g.table.members() }

// Member implements cluster.Members.
func (g *Gossip) Member(node uint64) (cluster.Member, bool) { return g.table.member(node) }

// Dead implements cluster.Members; see invariant 1.
func (g *Gossip) Dead(w mvcc.Worker) bool { return g.table.isDead(w) }

// Watch implements cluster.Members. fn is called on one goroutine, also for changes of
// this node itself. It may be called once more just after cancel.
func (g *Gossip) Watch(fn func(cluster.MemberEvent)) (cancel func()) { return g.table.watch(fn) }

// Set changes what this node says of itself: Draining, LeadsMeta and Load. Changes of other
// fields are ignored. It does not block; others are told within Timing.Update.
func (g *Gossip) Set(change func(m *cluster.Member)) {
	g.mu.Lock()
	next := g.self
	change(&next)
	// Field by field, so that change cannot touch what identifies the node.
	g.self.Draining, g.self.LeadsMeta, g.self.Load = next.Draining, next.LeadsMeta, next.Load
	self := g.self
	g.mu.Unlock()
	// This node's own readers see the change at once, other nodes after refresh.
	g.table.up(self)
	select {
	case g.dirty <- struct{}{}:
	default:
	}
}

// Close tells the others that this incarnation ends, and ends gossip. From then on others
// take the node's locks for abandoned, so the node must not need them any more. A second
// call does nothing.
func (g *Gossip) Close() error { return g.stop(true) }

// leaveTimeout limits a leaving node's wait until the others have been told.
const leaveTimeout = time.Second

// stop ends gossip once. With leave it tells the others first; tests call it without, which
// looks like a crash.
func (g *Gossip) stop(leave bool) error {
	if g.closed.Swap(true) {
		return nil
	}
	var err error
	if leave {
		if e := g.list.Leave(leaveTimeout); e != nil {
			g.cfg.Logger.Debug("gossip: not all heard that this node leaves", "error", e)
		}
	}
	// This package's goroutines are waited for last, because one may be in a call of
	// memberlist that ends when the transport is closed.
	g.end()
	g.listen.cancel()
	err = g.list.Shutdown()
	g.done.Wait()
	return err
}
