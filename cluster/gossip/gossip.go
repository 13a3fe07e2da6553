package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Config is what gossip needs to know.
type Config struct {
	// ClusterID: members of another cluster are refused.
	ClusterID string
	// Self is what this node says of itself at first. Self.Gossip is where others reach
	// it; empty: what the Listener bound.
	Self cluster.Member
	// Certs is the folder that holds the gossip keys (internal/certs). They are read
	// again while the node runs. Empty: plain.
	Certs string
	// Known returns the gossip addresses of nodes that may be there, such as the node
	// table's. Those that are no members are asked now and then to take this node in. It
	// must not block; may be nil.
	Known func() []string
	// Replaced is called once, on the goroutine of the watchers, when a later incarnation
	// of this very node has come alive: a process on a copy of its directory, or on the
	// directory itself after it was taken from this one. This process must end.
	Replaced func(by cluster.Member)
	// Timing tunes it. The zero value is what a cluster needs.
	Timing Timing
	Logger *slog.Logger // nil: discarded
}

// Timing says how often things are done. Zero fields take the defaults, with which a
// death is known after about a second.
type Timing struct {
	Probe        time.Duration // between two probes by one member; default 200 ms
	ProbeTimeout time.Duration // after which others are asked to probe; default 100 ms
	// between two rounds of gossip, which probes carry as well; default 500 ms
	Gossip   time.Duration
	PushPull time.Duration // between two exchanges of everything with one member; default 5 s
	// least time between two changes of what this node says of itself; default 1 s
	Update time.Duration
	// between two attempts to reach known nodes that are no members; default 5 s, a tenth
	// of it when alone
	Rejoin time.Duration
	Keys   time.Duration // between two looks at the keys; default 5 s
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
// Reads are of the table alone and never wait for memberlist. Four goroutines run from
// Open to Close (upkeep.go): one calls watchers, one spreads changes of this node's own
// word, one looks for members that are missing, and one re-reads the keys. memberlist has
// more, and calls back mostly under its lock (delegates.go). The mutex guards self.
type Gossip struct {
	cfg    Config
	hash   uint64
	listen *Listener
	ring   *memberlist.Keyring // nil: plain
	list   *memberlist.Memberlist
	table  *table
	mourn  *mourner

	mu    sync.Mutex
	self  cluster.Member
	dirty chan struct{} // one token when self has changed

	// once lets the first word of a later incarnation through, into replaced.
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
		mourn: &mourner{logger: cfg.Logger},
		self:  cfg.Self, dirty: make(chan struct{}, 1), replaced: make(chan cluster.Member, 1),
	}
	g.life, g.end = context.WithCancel(context.Background())
	conf, err := g.memberlist()
	if err != nil {
		return nil, err
	}
	if g.list, err = memberlist.Create(conf); err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
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
	// Others would be told an address that means themselves.
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
	// pings are too small to gain by it, and it was an eighth of what an idle node did
	c.EnableCompression = false
	c.ProbeInterval, c.ProbeTimeout, c.GossipInterval, c.PushPullInterval = t.Probe, t.ProbeTimeout,
		t.Gossip, t.PushPull
	// Shorter suspicion than memberlist's own: a death is to be known after about a
	// second.
	c.SuspicionMult, c.SuspicionMaxTimeoutMult, c.RetransmitMult = 3, 2, 4
	c.TCPTimeout = 2 * time.Second
	c.Logger = slog.NewLogLogger(newQuiet(g.cfg.Logger), slog.LevelInfo)
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

// Set changes what this node says of itself: Draining, LeadsMeta and Load; the rest is
// fixed. It does not block: others hear of it within Timing.Update.
func (g *Gossip) Set(change func(m *cluster.Member)) {
	g.mu.Lock()
	next := g.self
	change(&next)
	// Field by field, so that change cannot touch what identifies the node.
	g.self.Draining, g.self.LeadsMeta, g.self.Load = next.Draining, next.LeadsMeta, next.Load
	self := g.self
	g.mu.Unlock()
	// This node's own readers see it at once; the others when refresh has spread it.
	g.table.up(self)
	select {
	case g.dirty <- struct{}{}:
	default:
	}
}

// Close tells the others that this incarnation ends, and ends gossip. It must be called
// when the node holds no lock that it still means to use: from then on the others take
// its locks for abandoned. A second call does nothing.
func (g *Gossip) Close() error { return g.stop(true) }

// leaveTimeout bounds how long a leaving node waits until its word is out.
const leaveTimeout = time.Second

// stop ends gossip once, with or without a word to the others; tests end it without, as a
// crash would.
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
	// Our goroutines are told to end here and waited for last: one may be inside a call
	// of memberlist's, which closing the transport cuts short.
	g.end()
	g.listen.cancel()
	err = g.list.Shutdown()
	g.done.Wait()
	return err
}
