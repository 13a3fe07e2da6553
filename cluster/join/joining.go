package join

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/wire"
)

// The client side of Membership. Enter runs on the goroutine that opens the node and ends before
// Upkeep starts; Seek and Upkeep run on their own goroutines until their context ends, and may
// contact the same nodes concurrently. Requests to many nodes are sent in parallel, each on a
// goroutine that is joined before helloAll returns.

// Enter makes the node a member of a cluster: it founds one, alone or with others, or joins one,
// and waits for that until ctx ends. A node that is a member already tries to have its new
// incarnation registered only until its start is confirmed: all nodes may be starting, and Upkeep
// then registers it later.
//
// These errors are final: ErrOtherCluster, ErrDuplicateNode, ErrStaleIncarnation, ErrForgotten,
// ErrWaiting, ErrClock, version.ErrIncompatible.
func (d *Membership) Enter(ctx context.Context) error {
	switch {
	case !d.cfg.Self.Identity().Fresh():
		return d.rejoin(ctx)
	case len(d.cfg.Join) == 0:
		return d.cfg.Self.Begin(d.cfg.Bootstrap)
	}
	if err := d.cfg.Self.Wait(); err != nil {
		return err
	}
	var suspect time.Time // since when another process appears to have this node's identity
	for {
		done, err := d.round(ctx)
		// This node's previous process may have been killed a moment ago and still count as alive.
		// Only if the error lasts does another process have this identity.
		switch {
		case !errors.Is(err, cluster.ErrDuplicateNode):
			suspect = time.Time{}
		case suspect.IsZero():
			suspect = time.Now()
			fallthrough
		case time.Since(suspect) < duplicatePause:
			d.say("waiting: the identity appears to be in use", "error", err)
			done, err = false, nil
		}
		if done || err != nil {
			return err
		}
		if err := d.pause(ctx, roundPause); err != nil {
			return fmt.Errorf("join: waiting to join: %w", err)
		}
	}
}

// pause waits for about wait, with jitter, or until ctx ends, whose cause it returns.
func (d *Membership) pause(ctx context.Context, wait time.Duration) error {
	return d.pauseUnless(ctx, wait, nil)
}

// pauseUnless is like pause but also returns when it receives from the channel.
func (d *Membership) pauseUnless(ctx context.Context, wait time.Duration,
	something <-chan struct{}) error {
	t := time.NewTimer(wait/2 + rand.N(wait))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-something:
		return nil
	case <-t.C:
		return nil
	}
}

// helloResult is one address's response to Hello, or the error; then r is nil.
type helloResult struct {
	addr string
	r    *pb.HelloResponse
	err  error

	clock clockReading
}

// round contacts every address once and then joins, founds, or does neither.
func (d *Membership) round(ctx context.Context) (done bool, err error) {
	greetings := d.helloAll(ctx, d.targets())
	var in []helloResult
	for _, g := range greetings {
		if g.r != nil && g.r.ClusterId != "" {
			in = append(in, g)
		}
	}
	// An existing cluster comes first: founding a second one would split the nodes.
	if len(in) > 0 {
		return d.join(ctx, in)
	}
	d.logMisdirected(greetings)
	if d.cfg.Expect > 1 {
		return d.found(ctx)
	}
	d.logWaiting(greetings)
	return false, nil
}

// targets returns the addresses to contact: those that the operator named, and those of known
// fresh nodes.
func (d *Membership) targets() []string {
	out := slices.Clone(d.cfg.Join)
	for _, f := range d.heard.recent(func(f *freshNode) time.Time { return f.heard }) {
		out = append(out, f.node.Listen)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// helloAll sends Hello to all addresses concurrently, waits for the responses for at most
// callTimeout, and records them. It returns one helloResult per address.
func (d *Membership) helloAll(ctx context.Context, addrs []string) []helloResult {
	id := d.cfg.Self.Identity()
	out := d.hello(ctx, addrs, id, callTimeout)
	d.heard.fromAnswers(out, id.ClusterID)
	return out
}

// sound asks all addresses whether they refuse this start, without having them record it: a node
// that has missed this node's last start would record that of an old copy, and then refuse the
// original directory.
func (d *Membership) sound(ctx context.Context, addrs []string) (all []helloResult, refused bool) {
	id := d.cfg.Self.Identity()
	unrecorded := id
	unrecorded.Incarnation = 0 // Confirm records later incarnations than the known one only
	all = d.hello(ctx, addrs, unrecorded, soundTimeout)
	return all, d.heard.refusals(all, id.ClusterID)
}

// hello sends Hello with the identity to all addresses concurrently, and waits for the responses for
// at most timeout.
func (d *Membership) hello(ctx context.Context, addrs []string, id Identity, timeout time.Duration) []helloResult {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req := &pb.HelloRequest{
		NodeId: id.NodeID, Addresses: d.cfg.Addresses, Expect: uint32(max(d.cfg.Expect, 0)),
		ClusterId: id.ClusterID, Versions: wire.VersionsPB(d.cfg.Gate.Build()),
	}
	if !id.Fresh() {
		req.Incarnation, req.Starts = id.Incarnation, d.cfg.Self.History()
		req.LogReached = d.cfg.Self.Started()
	}
	out := make([]helloResult, len(addrs))
	var all sync.WaitGroup
	for i, addr := range addrs {
		all.Go(func() {
			began := d.clock()
			r, err := d.cfg.Contact.Hello(ctx, addr, req)
			out[i] = helloResult{
				addr: addr, r: r, err: err, clock: readClock(addr, began, d.clock(), r.GetUnixMs()),
			}
		})
	}
	all.Wait()
	return out
}

// join sends Join to one node of the cluster after another until one admits this node, and then
// returns true. It returns an error only if a retry cannot help, if another process appears to have
// this node's identity, or if ctx has ended.
func (d *Membership) join(ctx context.Context, in []helloResult) (bool, error) {
	id := d.cfg.Self.Identity()
	for _, g := range in {
		switch {
		case !id.Fresh() && g.r.ClusterId != id.ClusterID:
			return false, fmt.Errorf("%w: this directory is of cluster %s, but %s is of cluster %s; "+
				"name nodes of its own cluster (--join), "+
				"or join the other one with an empty directory", ErrOtherCluster, id.ClusterID,
				g.addr, g.r.ClusterId)
		case g.r.ClusterId != in[0].r.ClusterId:
			return false, fmt.Errorf("%w: %s is of cluster %s, but %s is of cluster %s; name nodes of "+
				"one cluster only (--join)",
				ErrOtherCluster, in[0].addr, in[0].r.ClusterId, g.addr, g.r.ClusterId)
		}
	}
	if err := d.joinVersions(id, in); err != nil {
		return false, err
	}
	if err := d.joinClocks(in); err != nil {
		return false, err
	}
	req := &pb.JoinRequest{
		ClusterId: id.ClusterID, NodeId: id.NodeID, Incarnation: id.Incarnation,
		Addresses: d.cfg.Addresses, Labels: d.cfg.Labels, Version: d.cfg.Version,
		Program: d.cfg.Program,
		Starts:  d.cfg.Self.Starts(), Versions: wire.VersionsPB(d.cfg.Gate.Build()),
	}
	for _, g := range in {
		calling, cancel := context.WithTimeout(ctx, 2*callTimeout)
		r, err := d.cfg.Contact.Join(calling, g.addr, req)
		cancel()
		if err == nil {
			// Before this directory contains anything of the cluster.
			err = d.cfg.Gate.Learn(wire.Agreed(r.Agreed))
			if err == nil {
				err = d.cfg.Self.Joined(r)
			}
			if err != nil {
				return false, err
			}
			d.cfg.Logger.Info("registered with the cluster", "cluster", r.ClusterId, "node",
				id.NodeID, "incarnation", id.Incarnation, "by", g.addr)
			return true, nil
		}
		// The cluster has decided; every other node would respond the same.
		if err = joinError(err); isRefusal(err) {
			return false, fmt.Errorf("join: %s does not admit this node: %w", g.addr, err)
		}
		if ctx.Err() != nil {
			return false, fmt.Errorf("join: waiting to join: %w", context.Cause(ctx))
		}
		d.say("waiting: the cluster cannot admit this node yet", "addr", g.addr, "error", err)
	}
	return false, nil
}

// joinVersions rejects a cluster whose version this build does not support. A returning node
// records the version: it may have been down when that was raised, and must know it before it
// opens a replica.
func (d *Membership) joinVersions(id Identity, in []helloResult) error {
	for _, g := range in {
		agreed := wire.Agreed(g.r.Agreed)
		err := agreed.Admit(d.cfg.Gate.Build())
		if err == nil && !id.Fresh() {
			err = d.cfg.Gate.Learn(agreed)
		}
		if err != nil {
			return fmt.Errorf("join: according to %s (build %s): %w", g.addr, g.r.Version, err)
		}
	}
	return nil
}

// isRefusal reports whether an error is a rejection of this node, as opposed to a temporary
// failure. A rejection is final, except that ErrDuplicateNode may only mean that this node's
// previous process still counts as alive.
func isRefusal(err error) bool {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return true
		}
	}
	return false
}

// maxAskedBack limits the number of known nodes that a returning node contacts in addition to
// those it votes with.
const maxAskedBack = 32

// rejoin registers the new incarnation with any node that responds. If none can, because all
// may be starting, the node continues as soon as a majority of the voters, this node included, has
// confirmed its start and none has refused it (confirm.go); Upkeep registers it later.
func (d *Membership) rejoin(ctx context.Context) error {
	began, admitted := time.Now(), false
	for {
		addrs := d.knownAddrs()
		greetings, refused := d.sound(ctx, addrs)
		asking, cancel := context.WithTimeout(ctx, rejoinTimeout)
		if !refused || admitted {
			greetings = d.helloAll(asking, addrs)
			again, err := d.discard(ctx)
			if again || err != nil {
				cancel()
				if err != nil {
					return fmt.Errorf("join: rejoin: %w", err)
				}
				continue
			}
		}
		done, err := d.join(asking, d.ofCluster(slices.Clone(greetings)))
		cancel()
		if done && refused && !admitted {
			admitted = true // meta has decided: the others may record this start
			continue
		}
		confirmed, missing := d.heard.confirmed(d.cfg.Voters)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("join: rejoin: %w", context.Cause(ctx))
		case done:
			return d.cfg.Self.Confirmed()
		case errors.Is(err, cluster.ErrDuplicateNode) && time.Since(began) < duplicatePause:
			d.say("waiting: the identity appears to be in use", "error", err)
			err = d.pause(ctx, roundPause)
		case isRefusal(err):
			return err
		// Not registered, but safe to vote: meta may need this very node for its quorum.
		case confirmed:
			if len(addrs) > 0 {
				d.cfg.Logger.Info("no node has registered this one yet; it starts anyway, because the others may be "+
					"starting too", "asked", addrs)
			}
			return d.cfg.Self.Confirmed()
		default:
			d.logMisdirected(greetings)
			err = d.hold(ctx, missing)
		}
		if err != nil {
			return fmt.Errorf("join: rejoin: %w", err)
		}
	}
}

// knownAddrs returns the addresses of the nodes known to this one: those named by the operator,
// all that it votes with, some others, and those that have called.
func (d *Membership) knownAddrs() []string {
	addrs := slices.Clone(d.cfg.Join)
	others := 0
	for _, n := range d.cfg.Self.Contacts().Nodes {
		if !slices.Contains(d.cfg.Voters, n.NodeId) {
			if others++; others > maxAskedBack {
				continue
			}
		}
		addrs = append(addrs, n.Listen)
	}
	addrs = append(addrs, d.heard.calling()...)
	slices.Sort(addrs)
	return slices.DeleteFunc(slices.Compact(addrs), func(addr string) bool {
		return addr == d.cfg.Addresses.GetListen()
	})
}

// Seek asks the known nodes for their current addresses, repeatedly, until this incarnation is
// registered or ctx ends. Until meta is reached it is the only source of addresses that have
// changed since the last run.
func (d *Membership) Seek(ctx context.Context) {
	for d.pause(ctx, rejoinTimeout) == nil && !d.registered.Load() {
		d.helloAll(ctx, d.knownAddrs())
		d.checkBehind(ctx)
	}
}

// ofCluster drops the responses of fresh nodes, and those of another cluster at addresses that
// the operator has not named: such an address may have been reassigned. Those that the operator
// named are kept, for join to reject.
func (d *Membership) ofCluster(all []helloResult) []helloResult {
	own := d.cfg.Self.Identity().ClusterID
	return slices.DeleteFunc(all, func(g helloResult) bool {
		return g.r == nil || g.r.ClusterId == "" ||
			(g.r.ClusterId != own && !slices.Contains(d.cfg.Join, g.addr))
	})
}

// Register registers this incarnation through r, once the node can reach meta itself. If it is
// registered already it does nothing.
func (d *Membership) Register(ctx context.Context, r Registry) error {
	if d.registered.Load() {
		return nil
	}
	id, a := d.cfg.Self.Identity(), d.cfg.Addresses
	err := r.Register(ctx, &wire.NodeRecord{
		NodeId: id.NodeID, Incarnation: id.Incarnation, Labels: d.cfg.Labels,
		Version: d.cfg.Version, Program: d.cfg.Program,
		Listen: a.GetListen(), Peer: a.GetPeer(), Gossip: a.GetGossip(), Http: a.GetHttp(),
		Starts: d.cfg.Self.Starts(), Versions: wire.VersionsPB(d.cfg.Gate.Build()),
	})
	d.registered.Store(err == nil)
	return err
}

// Upkeep registers the node, with retries, and then keeps its stored contacts up to date for the
// next start, until ctx ends. It returns an error only if the node is rejected and must stop.
func (d *Membership) Upkeep(ctx context.Context, r Registry) error {
	for {
		wait := d.cfg.Upkeep
		err := d.Register(ctx, r)
		if isRefusal(err) {
			return err
		}
		if err == nil {
			err = d.noteContacts(ctx, r)
		}
		if err == nil {
			err = d.cfg.Self.noteReached(d.reachedFunc())
		}
		if err != nil && ctx.Err() == nil {
			d.say("cannot register with meta or update the stored contacts yet", "error", err)
			wait = roundPause
		} else {
			// A returning node that waits for others may know no other node: it calls the nodes
			// that call it. The same holds for a founder that is named only in the others' Join.
			d.helloAll(ctx, d.knownAddrs())
			d.checkBehind(ctx)
			if len(d.cfg.Self.Contacts().Nodes) < d.cfg.Expect {
				wait = 10 * roundPause
			}
		}
		if d.pauseUnless(ctx, wait, d.again) != nil {
			return nil
		}
	}
}

// noteContacts stores the registry's contacts. If they lack this node, the next Register repeats
// its registration.
func (d *Membership) noteContacts(ctx context.Context, r Registry) error {
	contacts, err := r.Contacts(ctx)
	if err != nil {
		return err
	}
	id := d.cfg.Self.Identity()
	if !slices.ContainsFunc(contacts.Nodes, func(n *pb.Node) bool {
		return n.NodeId == id.NodeID
	}) {
		// The cluster declared this node gone, or even forgot it, while the node was partitioned.
		// Registering again shows which of the two.
		d.registered.Store(false)
	}
	contacts.ClusterId = id.ClusterID
	return d.cfg.Self.Joined(contacts)
}

// say logs the reason for waiting, each text at once and then every logPause.
func (d *Membership) say(text string, args ...any) { d.tell(slog.LevelInfo, text, "", args) }

// warn is like say, for conditions that an operator must fix. Texts about different subjects
// count as different.
func (d *Membership) warn(text, subject string, args ...any) {
	d.tell(slog.LevelWarn, text, subject, args)
}

// tell logs text unless it did so about the subject less than logPause ago. It drops older entries,
// to bound its memory.
func (d *Membership) tell(level slog.Level, text, subject string, args []any) {
	now, key := time.Now(), text+" "+subject
	d.mu.Lock()
	maps.DeleteFunc(d.said, func(_ string, at time.Time) bool { return now.Sub(at) >= logPause })
	_, again := d.said[key]
	if !again {
		d.said[key] = now
	}
	d.mu.Unlock()
	if !again {
		d.cfg.Logger.Log(context.Background(), level, text, args...)
	}
}
