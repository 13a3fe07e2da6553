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
	// Self is this node's initial metadata. Self.Gossip is the address that it advertises,
	// by default the Listener's.
	Self cluster.Member
	// Certs is the folder that holds the gossip keys (internal/certs). They are reloaded
	// while the node runs. Empty: messages are not encrypted.
	Certs string
	// Known returns the gossip addresses of nodes that may be alive, such as the node
	// table's. Every Timing.Rejoin this node tries to join up to 8 of those at which it knows no
	// member. Known must not block; it may be nil.
	Known func() []string
	// Gate holds the versions that the cluster has agreed on: members whose builds do not support
	// them are refused. Nil means no member is refused for its version.
	Gate *version.Gate
	// Replaced is called once, on the watchers' goroutine, when a later incarnation of this
	// node appears: a process on a copy of its directory, or on the directory itself after
	// this process lost it. This process must then end.
	Replaced func(by cluster.Member)
	// Timing is for tests; the zero value suits a cluster.
	Timing Timing
	Logger *slog.Logger // nil: discarded
}

// Timing holds gossip's intervals and timeouts. Zero fields get the defaults, with which a
// death is detected after about a second.
type Timing struct {
	// Probe is the interval between two probes by one member; default 200 ms.
	Probe time.Duration
	// ProbeTimeout is the wait for an answer before other members probe too; default 100 ms.
	ProbeTimeout time.Duration
	// Gossip is the interval between two rounds of gossip; default 500 ms. Probes also carry
	// gossip.
	Gossip time.Duration
	// PushPull is the interval between two exchanges of the whole state with one member;
	// default 5 s. With more than 32 members memberlist lengthens it.
	PushPull time.Duration
	// Update is the minimum interval between two updates of this node's metadata; default
	// 1 s.
	Update time.Duration
	// Rejoin is the mean interval between two attempts to join known nodes that are not members;
	// default 5 s. A node without other members, or that has lost one in the last minute, uses a
	// tenth of it.
	Rejoin time.Duration
	// Keys is the interval between two reloads of the keys; default 5 s.
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

// apply sets the intervals and timeouts of t, none of which may be 0, in c, and returns c.
func (t Timing) apply(c *memberlist.Config) *memberlist.Config {
	// Pings are too small to gain from compression, which was an eighth of an idle node's
	// processor time.
	c.EnableCompression = false
	c.ProbeInterval, c.ProbeTimeout, c.GossipInterval, c.PushPullInterval = t.Probe, t.ProbeTimeout,
		t.Gossip, t.PushPull
	// Suspicion is shorter than memberlist's default, so that a death is detected after
	// about a second.
	c.SuspicionMult, c.SuspicionMaxTimeoutMult, c.RetransmitMult = 3, 2, 4
	c.TCPTimeout = 2 * time.Second
	return c
}

// Gossip is this node's membership. Its methods may be used concurrently.
//
// Reads use only the table and never wait for memberlist. Four goroutines run from Open to
// Close (upkeep.go): one calls watchers, one publishes changes of this node's metadata, one
// joins missing members, and one reloads the keys, if there are any. memberlist has its own and
// calls back mostly under its lock (delegates.go). The mutex guards self.
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

	// once sends only the first report of a later incarnation to replaced.
	once     sync.Once
	replaced chan cluster.Member
	closed   atomic.Bool
	life     context.Context
	end      context.CancelFunc
	done     sync.WaitGroup
}

var _ cluster.Members = (*Gossip)(nil)

// Open starts gossip over the listener, which the Gossip owns if Open succeeds. It does not wait
// for other nodes. Its errors include ErrKeys and ErrTooLong.
func Open(cfg Config, l *Listener) (*Gossip, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Timing = cfg.Timing.withDefaults()
	cfg.Self.Gossip = cmp.Or(cfg.Self.Gossip, l.Addr())
	if cfg.Self.NodeID == 0 || cfg.Self.Incarnation == 0 || cfg.ClusterID == "" {
		return nil, errors.New("gossip: Config needs ClusterID, Self.NodeID and Self.Incarnation")
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
		err = fmt.Errorf("gossip: start memberlist: %w", err)
		if strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) { // memberlist keeps only the text
			err = coded.Mark(err, syscall.EADDRINUSE)
		}
		return nil, err
	}
	for _, work := range []func(){g.deliver, g.refresh, g.rejoin, g.rereadKeys} {
		g.done.Go(work)
	}
	return g, nil
}

// memberlist reads the keys and returns memberlist's configuration.
func (g *Gossip) memberlist() (*memberlist.Config, error) {
	ip, port, err := resolve(g.cfg.Self.Gossip)
	if err != nil {
		return nil, err
	}
	// Other nodes would take such an address for their own.
	if ip.IsUnspecified() || port == 0 {
		return nil, fmt.Errorf("gossip: other nodes cannot reach %s: advertise an IP address of this node and "+
			"a port other than 0", g.cfg.Self.Gossip)
	}
	if g.cfg.Certs != "" {
		keys, err := readKeys(g.cfg.Certs)
		if err != nil {
			return nil, err
		}
		if g.ring, err = memberlist.NewKeyring(keys, keys[0]); err != nil {
			return nil, fmt.Errorf("%w: create the keyring: %w", ErrKeys, err)
		}
	}
	c := g.cfg.Timing.apply(memberlist.DefaultLANConfig())
	// One memberlist member for each incarnation, see the package's documentation.
	c.Name = nameOf(workerOf(g.cfg.Self))
	c.Transport, c.Keyring = g.listen, g.ring
	c.AdvertiseAddr, c.AdvertisePort = ip.String(), port
	c.BindPort = g.listen.GetAutoBindPort()
	c.Logger = slog.NewLogLogger(newLibraryLog(g.cfg.Logger), slog.LevelInfo)
	c.Delegate, c.Events, c.Merge, c.Alive, c.Conflict = delegate{g}, events{g}, admission{g},
		admission{g}, admission{g}
	return c, nil
}

// nameOf returns the name of an incarnation in memberlist.
func nameOf(w mvcc.Worker) string { return fmt.Sprintf("%016x-%d", w.Node, w.Incarnation) }

// Addr returns the address that this node advertises for gossip.
func (g *Gossip) Addr() string { return g.cfg.Self.Gossip }

// Alive implements cluster.Members.
func (g *Gossip) Alive() []cluster.Member { return g.table.members() }

// Member implements cluster.Members.
func (g *Gossip) Member(node uint64) (cluster.Member, bool) { return g.table.member(node) }

// Dead implements cluster.Members. It reports whether gossip has declared that the incarnation died
// or left, or a later one exists. It returns false for a node that was never a member.
func (g *Gossip) Dead(w mvcc.Worker) bool { return g.table.isDead(w) }

// Watch implements cluster.Members. It calls fn on one goroutine, also for changes of this
// node. Calls for changes from before cancel may still follow it.
func (g *Gossip) Watch(fn func(cluster.MemberEvent)) (cancel func()) { return g.table.watch(fn) }

// Set changes Draining, LeadsMeta and Load of this node's metadata and ignores changes of
// other fields. It does not block; the change is published after at most about Timing.Update.
func (g *Gossip) Set(change func(m *cluster.Member)) {
	g.mu.Lock()
	next := g.self
	change(&next)
	// Field by field, so that change cannot alter the node's identity.
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

// Close announces that this incarnation ends, and stops gossip. From then on other nodes
// treat the node's locks as abandoned, so the node must no longer need them. A second call
// does nothing.
func (g *Gossip) Close() error { return g.stop(true) }

// leaveTimeout limits a leaving node's wait for its announcement to be sent.
const leaveTimeout = time.Second

// stop stops gossip once. With leave it first announces the end; tests call it without, which
// imitates a crash.
func (g *Gossip) stop(leave bool) error {
	if g.closed.Swap(true) {
		return nil
	}
	var err error
	if leave {
		if e := g.list.Leave(leaveTimeout); e != nil {
			g.cfg.Logger.Debug("gossip: could not announce to all members that this node leaves", "error", e)
		}
	}
	// Wait for this package's goroutines last: one may be in a call of memberlist that ends
	// when the transport is closed.
	g.end()
	g.listen.cancel()
	err = g.list.Shutdown()
	g.done.Wait()
	return err
}
