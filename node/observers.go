package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/observer"
	"github.com/percolator-go/percolator/actors/scanner"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/admin"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// observers runs the observers that this node's program links (§2.4). It owns whether
// they are entered in the catalogue (registration), and what runs them (runs). Whoever
// holds the token of applying, one goroutine at a time, may change what runs.
//
// The node starts and stops it. The goroutines of changes and of operators' requests make
// it apply the newest catalogue; they may wait. Runs of observers may be in flight until
// stop.
type observers struct {
	cfg       Config
	self      join.Identity
	worker    mvcc.Worker
	life      context.Context
	system    *actor.ActorSystem
	client    *txn.Client
	schema    *meta.Schema
	catalogue *meta.Observers
	backfills *meta.BackfillRecords
	router    *route.Router
	peerNodes *cluster.PeerNodes
	tablets   *tablets
	survey    *scanner.ClusterSurvey
	policy    *cluster.PolicyView
	locks     *locker
	// wakeJob has the back-fills look at once what is to be done, if they run here.
	wakeJob func()

	registration *registration
	// applying has capacity 1 and holds a token while somebody tells the dispatcher what
	// the catalogue says. A channel, not a mutex, so that waiting for it ends with ctx.
	applying chan struct{}
	runs     atomic.Pointer[notifications]
	last     admin.LastAnswer[[]*pb.ObserverState] // for the metrics
}

// applyCatalogue reads the cluster's policy and the newest catalogue, and starts, stops
// and limits this node's observers as the catalogue says. Whoever learns of a newer
// version calls it. Calls take turns, and each reads the catalogue in its turn, so that
// an older version is never applied last. The error may wrap meta.ErrUntold.
func (obs *observers) applyCatalogue(ctx context.Context) error {
	if _, err := obs.policy.Read(ctx); err != nil {
		return err
	}
	select {
	case obs.applying <- struct{}{}:
		defer func() { <-obs.applying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return obs.applyCatalogueLocked(ctx)
}

// applyCatalogueLocked is the part of applyCatalogue for which the caller holds the
// token of applying.
func (obs *observers) applyCatalogueLocked(ctx context.Context) error {
	c, err := obs.catalogue.Catalogue(ctx)
	if err != nil {
		return err
	}
	x := obs.runs.Load()
	if x == nil {
		return nil // start applies the catalogue before anything runs
	}
	// Pauses and limits are applied even if relinking failed.
	c, failed := obs.relink(ctx, x, c)
	if err := x.dispatcher.Control(ctx, append(c.GetObservers(),
		forgotten(c, x.dispatcher.Registered())...)); err != nil {
		return errors.Join(failed, err)
	}
	return errors.Join(failed, obs.rescan(ctx, x))
}

// forgotten returns, as retired, those of the observers that have no entry in the
// catalogue although their table is still there: they were retired, and their entry was
// removed before this node read it. One that start could not enter in time is returned
// too, until it is entered: no tablet notifies anybody of its column before that.
func forgotten(c *pb.Catalogue, registered []observer.Registered) []*pb.ObserverInfo {
	var out []*pb.ObserverInfo
	for _, o := range registered {
		entered := slices.ContainsFunc(c.GetObservers(), func(i *pb.ObserverInfo) bool {
			return i.Name == o.Spec.Name
		})
		if o.Table == 0 || entered || meta.IsDropped(c, uint32(o.Table)) {
			continue
		}
		info := infoOf(o.Spec, o.Table)
		info.Retired = true
		out = append(out, info)
	}
	return out
}

// applyEverywhere returns when every node that is alive has applied the newest
// catalogue, or with an error when ctx ends. A node that dies meanwhile, or is away now,
// reads the catalogue before it runs anything.
func (obs *observers) applyEverywhere(ctx context.Context) error {
	// This node first: if meta does not answer it, the others need not be asked.
	if err := obs.applyCatalogue(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	// All at once: the slowest node sets the time, not their number.
	for _, node := range obs.peerNodes.Alive() {
		group.Go(func() error { return obs.awaitApplied(ctx, node) })
	}
	return group.Wait()
}

// applyTimeout bounds one request to another node; applyPause is the pause before the
// next.
const (
	applyTimeout = 2 * time.Second
	applyPause   = 50 * time.Millisecond
)

// awaitApplied asks one node until it has applied the catalogue or gossip no longer
// believes it alive. The error is that ctx has ended before.
func (obs *observers) awaitApplied(ctx context.Context, node uint64) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, applyTimeout)
		_, err := obs.peerNodes.Call(attempt, node,
			&wire.PeerRequest{Body: &wire.PeerRequest_Honour{Honour: &wire.HonourCatalogue{}}})
		cancel()
		// A node that is gone reads the catalogue when it comes back.
		if err == nil || !obs.peerNodes.IsAlive(node) {
			return nil
		}
		if err := txn.Sleep(ctx, applyPause); err != nil {
			return fmt.Errorf("node %d is alive and has not applied the observer catalogue: %w", node, err)
		}
	}
}

// wakeBackfills makes the node that leads meta look for back-fills. It does not wait. It
// is a hint: without it the back-fills are found a few seconds later.
func (obs *observers) wakeBackfills() {
	obs.wakeJob()
	// Where meta is led from here, or by nobody known, that was all.
	if leader := obs.router.Leader(cluster.MetaTablet); leader != 0 && leader != obs.self.NodeID {
		req := &wire.PeerRequest{Body: &wire.PeerRequest_Honour{Honour: &wire.HonourCatalogue{}}}
		obs.peerNodes.Tell(leader, time.Now().Add(applyTimeout), req,
			func(*wire.PeerResponse, error) {})
	}
}

// waiting lists the catalogue's observers with the notifications that wait for them. It
// asks meta and the tablets; what nodes are doing for the observers is left out.
func (obs *observers) waiting(ctx context.Context) ([]*pb.ObserverState, error) {
	c, err := obs.catalogue.Catalogue(ctx)
	if err != nil {
		return nil, err
	}
	// The tablets' leaders count what waits, from their notification indexes.
	pending, err := obs.client.PendingObservers(ctx)
	if err != nil {
		return nil, err
	}
	fills, err := obs.backfills.Backfills(ctx, c.GetObservers())
	if err != nil {
		return nil, err
	}
	linked, err := obs.linked(ctx)
	if err != nil {
		return nil, err
	}
	// The four were read one after another. The catalogue decides which observers there
	// are; whatever the others say of an observer that it lacks is left out.
	out := make([]*pb.ObserverState, 0, len(c.GetObservers()))
	for _, o := range c.GetObservers() {
		p := pending[o.Name]
		out = append(out, &pb.ObserverState{
			Info: proto.CloneOf(o), Linked: linked[o.Name], Notifications: p.GetNotifications(),
			Parked:  p.GetParked(),
			Intents: p.GetIntents(), OldestTs: p.GetOldestTs(), Backfill: fills[o.Name],
		})
	}
	return out, nil
}

// states returns what waits for observers, for the metrics: as of now, or, if meta and
// the tablets do not answer within a second, as it was last found. age is how long ago
// that was; ok is false if it was never found.
func (obs *observers) states() (states []*pb.ObserverState, age time.Duration, ok bool) {
	ctx, cancel := context.WithTimeout(obs.life, time.Second)
	defer cancel()
	if states, err := obs.waiting(ctx); err == nil {
		obs.last.Set(states)
	} else {
		obs.cfg.Logger.Debug("observers could not be counted for the metrics", "error", err)
	}
	return obs.last.Get()
}

// linked returns the names of the observers that some live node runs.
func (obs *observers) linked(ctx context.Context) (map[string]bool, error) {
	if obs.peerNodes.Alone() { // no question to meta: this node's status must not wait for it
		here := map[string]bool{}
		for _, s := range obs.runs.Load().status() {
			here[s.Name] = true
		}
		return here, nil
	}
	return obs.catalogue.Linked(ctx, obs.peerNodes.IsAlive)
}
