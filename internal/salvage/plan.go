package salvage

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/group"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// Choice of the replica of each tablet that survives. Pure functions.

// Actions of a plan on a tablet.
const (
	Keep    = "keep"    // the surviving nodes have its quorum: left unchanged
	Recover = "recover" // one replica survives, as the tablet's only one
	Create  = "create"  // no replica remains: an empty one is created
)

// Plan contains the action for each tablet.
type Plan struct {
	Format  int       `json:"format"`
	ID      string    `json:"id"`
	Cluster string    `json:"cluster"`
	Made    time.Time `json:"made"`
	Dead    []uint64  `json:"dead"` // nodes that are declared dead
	Stores  []Store   `json:"stores"`
	Tablets []Tablet  `json:"tablets"` // in the order of their ranges
	Highest uint64    `json:"highest_ts"`
	// Mark is the new value of the oracle's mark, above which the oracle issues the next
	// timestamps; 0 means the meta tablet is kept, with its mark.
	Mark   uint64      `json:"mark,omitempty"`
	Floors meta.Floors `json:"floors"`
	// Obsolete are tablets whose remaining replicas are removed, since their rows belong to other
	// tablets.
	Obsolete []uint64 `json:"obsolete,omitempty"`
}

// Store is a surviving node and the state in which its store was inspected.
type Store struct {
	Node        uint64 `json:"node"`
	Fingerprint string `json:"fingerprint"`
}

// Tablet is the action on one tablet.
type Tablet struct {
	Tablet     uint64     `json:"tablet"`
	Action     string     `json:"action"`
	Descriptor Descriptor `json:"descriptor"` // after the recovery
	// Node has the surviving replica, or gets the empty one. The new group's log begins
	// after the entry (Index, Term), which is above all that is known of the former group.
	Node  uint64 `json:"node,omitempty"`
	Index uint64 `json:"index,omitempty"`
	Term  uint64 `json:"term,omitempty"`
	// Cleared is the part of the replica's rows that belongs to another tablet.
	Cleared *Descriptor `json:"cleared,omitempty"`
	// Uncommitted is the number of entries at the end of the replica's log that are not known to be
	// committed. The recovery commits them.
	Uncommitted uint64   `json:"uncommitted"`
	Newest      uint64   `json:"newest_ts"`      // highest timestamp in the replica's rows
	Lost        []uint64 `json:"lost,omitempty"` // nodes of dead voters: may have later entries
}

// Options configures Make.
type Options struct {
	Dead       []uint64 // permanently lost nodes
	AcceptGaps bool     // create empty tablets for rows of which no replica remains
	Now        time.Time
}

var (
	// ErrNothingLost reports that every tablet has its quorum among the inspected nodes.
	ErrNothingLost = errors.New("salvage: every tablet has its quorum among the inspected nodes: start them")
	// ErrMayLive reports that a node that is neither inspected nor declared dead may be part of a
	// live quorum.
	ErrMayLive = errors.New("salvage: a quorum may be alive")
	// ErrGap reports that no replica remains of some rows.
	ErrGap = errors.New("salvage: some rows have no surviving replica")
	// ErrUnfit reports that the inspections contradict each other.
	ErrUnfit = errors.New("salvage: the inspections do not fit together")
)

const (
	// epochLead and replicaLead are the distances of a new group's epoch and replica id from the
	// highest known ones: more than a lost majority can have assigned since.
	epochLead, replicaLead = 1 << 20, 1 << 10
	// idLead is the same for the ids of tablets and tables.
	idLead = 1 << 16
	// markLead is the distance of the oracle's new mark from the highest known timestamp. It
	// exceeds the distance by which the oracle raises the mark above its last timestamp.
	markLead = 10 * time.Second
	// maxAhead limits how far the highest known timestamp may be ahead of this machine's clock.
	maxAhead = 24 * time.Hour
)

// candidate is a replica and the node that holds it.
type candidate struct {
	Replica
	node uint64
}

// before reports whether the candidate's log ends before o's by (term, index). Of equal ends the
// lower commit index is before, and then the higher node id.
func (c *candidate) before(o *candidate) bool {
	return cmp.Or(cmp.Compare(c.LastTerm, o.LastTerm), cmp.Compare(c.Last, o.Last),
		cmp.Compare(c.Committed, o.Committed), cmp.Compare(o.node, c.node)) < 0
}

// planner computes one plan.
type planner struct {
	opts     Options
	all      []*Inspection
	survives map[uint64]bool
	meta     *MetaTablet             // contents of the best replica of the meta tablet; nil: none
	found    map[uint64][]*candidate // by tablet: all replicas, also waiting ones
	plan     *Plan
}

// Make returns the plan for the inspected nodes. Errors: ErrUnfit, ErrMayLive, ErrGap,
// ErrNothingLost.
func Make(all []*Inspection, opts Options) (*Plan, error) {
	p := &planner{
		opts: opts, all: all, survives: map[uint64]bool{}, found: map[uint64][]*candidate{},
		plan: &Plan{
			Format: format, ID: uuid.NewString(), Made: opts.Now, Dead: slices.Sorted(slices.Values(opts.Dead)),
		},
	}
	if err := p.fit(); err != nil {
		return nil, err
	}
	p.gather()
	if err := p.mayLive(); err != nil {
		return nil, err
	}
	p.choose()
	if err := p.cover(); err != nil {
		return nil, err
	}
	lost := slices.ContainsFunc(p.plan.Tablets, func(t Tablet) bool { return t.Action != Keep })
	if !lost {
		return nil, ErrNothingLost
	}
	return p.plan, p.raise()
}

// fit checks that the inspections are of different nodes of one cluster, and of their newest
// directories.
func (p *planner) fit() error {
	if len(p.all) == 0 {
		return fmt.Errorf("%w: none were passed", ErrUnfit)
	}
	p.plan.Cluster = p.all[0].Cluster
	for _, in := range p.all {
		switch {
		case in.Format != format:
			return fmt.Errorf("%w: that of node %d has format %d, this build supports %d", ErrUnfit, in.Node, in.Format, format)
		case in.Cluster != p.plan.Cluster:
			return fmt.Errorf("%w: node %d is of cluster %s, node %d of cluster %s", ErrUnfit,
				p.all[0].Node, p.plan.Cluster, in.Node, in.Cluster)
		case p.survives[in.Node]:
			return fmt.Errorf("%w: two belong to node %d", ErrUnfit, in.Node)
		case slices.Contains(p.opts.Dead, in.Node):
			return fmt.Errorf("%w: node %d is both inspected and declared dead", ErrUnfit, in.Node)
		}
		p.survives[in.Node] = true
		p.plan.Stores = append(p.plan.Stores, Store{in.Node, in.Fingerprint})
	}
	for _, in := range p.all {
		for _, other := range p.all {
			if start, ok := in.Heard[other.Node]; ok && !slices.Contains(other.Starts, start) {
				return fmt.Errorf("%w: node %d knows a later start of node %d, whose inspected directory is an old copy",
					ErrUnfit, in.Node, other.Node)
			}
		}
	}
	return nil
}

// gather sorts the replicas by tablet, the best first, and finds the best replica of meta.
func (p *planner) gather() {
	metas := map[uint64]*MetaTablet{}
	for _, in := range p.all {
		metas[in.Node] = in.Meta
		for _, r := range in.Replicas {
			p.found[r.Tablet] = append(p.found[r.Tablet], &candidate{r, in.Node})
		}
	}
	p.cutTakings()
	for _, found := range p.found {
		slices.SortFunc(found, func(a, b *candidate) int {
			if a.before(b) {
				return 1
			}
			return -1
		})
	}
	for _, c := range p.found[cluster.MetaTablet] {
		if p.meta == nil {
			p.meta = metas[c.node]
		}
	}
}

// nodes returns all nodes with a vote or in the known node table.
func (p *planner) nodes() map[uint64]bool {
	out := map[uint64]bool{}
	add := func(d *pb.TabletDescriptor) {
		for _, r := range d.GetReplicas() {
			if !r.Learner {
				out[r.NodeId] = true
			}
		}
	}
	for _, found := range p.found {
		for _, c := range found {
			add(c.Settled.TabletDescriptor)
			add(c.Final.TabletDescriptor)
		}
	}
	if p.meta != nil {
		for _, d := range p.meta.Tablets {
			add(d.TabletDescriptor)
		}
		for _, n := range p.meta.Nodes {
			out[n.Node] = true
		}
	}
	return out
}

// mayLive returns ErrMayLive if a node is neither inspected nor declared dead, and ErrUnfit if no
// survivor knows a node that is declared dead.
func (p *planner) mayLive() error {
	known := p.nodes()
	for _, dead := range p.opts.Dead {
		if !known[dead] && !slices.ContainsFunc(p.all, func(in *Inspection) bool {
			return slices.ContainsFunc(in.Nodes, func(n Node) bool { return n.Node == dead })
		}) {
			return fmt.Errorf("%w: no survivor knows node %d, which is declared dead", ErrUnfit, dead)
		}
	}
	var open []uint64
	for _, node := range slices.Sorted(maps.Keys(known)) {
		if !p.survives[node] && !slices.Contains(p.opts.Dead, node) {
			open = append(open, node)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("%w: nodes %d are neither inspected nor declared dead", ErrMayLive, open)
	}
	return nil
}

// lives reports whether a majority of the voters is on surviving nodes and not stale; in a joint
// configuration, a majority of both.
func (p *planner) lives(d *pb.TabletDescriptor) bool {
	conf := group.ConfState(d)
	for _, voters := range [][]uint64{conf.Voters, conf.VotersOutgoing} {
		alive := 0
		for _, id := range voters {
			stale := slices.ContainsFunc(p.found[d.TabletId], func(c *candidate) bool {
				return c.Stale && c.Replica.Replica == id
			})
			if p.survives[group.Replica(d, id).GetNodeId()] && !stale {
				alive++
			}
		}
		if len(voters) > 0 && alive <= len(voters)/2 {
			return false
		}
	}
	return len(conf.Voters) > 0
}

// choose chooses the action on each tablet with a replica. A replica that a split in another log
// creates counts only if that log survives, so parents come first.
func (p *planner) choose() {
	chosen := map[uint64]*Tablet{}
	for {
		before := len(chosen)
		for _, id := range slices.Sorted(maps.Keys(p.found)) {
			if chosen[id] != nil {
				continue
			}
			best := p.best(p.found[id], chosen)
			if best == nil {
				continue
			}
			t := &Tablet{
				Tablet: id, Action: Keep, Descriptor: Descriptor{proto.CloneOf(best.Final.TabletDescriptor)},
				Node: best.node, Newest: best.Newest, Uncommitted: best.Last - best.Committed,
			}
			// A leader elected under the settled configuration proceeds to the final one, so both
			// need a majority.
			if !p.lives(best.Settled.TabletDescriptor) || !p.lives(best.Final.TabletDescriptor) {
				t.Action, t.Index = Recover, best.Last+1
				t.Lost = p.lostVoters(best)
			}
			chosen[id] = t
		}
		if len(chosen) == before {
			break
		}
	}
	for _, id := range slices.Sorted(maps.Keys(chosen)) {
		p.plan.Tablets = append(p.plan.Tablets, *chosen[id])
	}
}

// best returns the candidate with the most advanced log, or nil if no replica counts.
func (p *planner) best(found []*candidate, chosen map[uint64]*Tablet) *candidate {
	for _, c := range found {
		parent := chosen[c.Born]
		born := parent != nil && (parent.Action == Keep || parent.Node == c.node)
		if !c.waits() && (c.Born == 0 || born) {
			return c
		}
	}
	return nil
}

// lostVoters returns the dead voters of the replica's descriptors.
func (p *planner) lostVoters(c *candidate) (out []uint64) {
	for _, d := range []*pb.TabletDescriptor{c.Settled.TabletDescriptor, c.Final.TabletDescriptor} {
		for _, r := range d.GetReplicas() {
			if !r.Learner && !p.survives[r.NodeId] {
				out = append(out, r.NodeId)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// cover assigns every row to one tablet. If ranges overlap, the tablet with the higher epoch prevails:
// it was split off from a later state of the other, or the other, which is frozen, was merged into it.
func (p *planner) cover() error {
	byEpoch := slices.Clone(p.plan.Tablets)
	slices.SortFunc(byEpoch, func(a, b Tablet) int {
		return cmp.Or(cmp.Compare(b.Descriptor.Epoch, a.Descriptor.Epoch), cmp.Compare(a.Tablet, b.Tablet))
	})
	free := []span{{}}
	p.plan.Tablets = nil
	for _, t := range byEpoch {
		had := spanOf(t.Descriptor.TabletDescriptor)
		got, ok := claim(&free, had)
		switch {
		case !ok && p.takenBy(&t) == Keep: // the nodes finish the merge, or release the tablet
			t.Action, t.Lost = Keep, nil
		case !ok && p.takenBy(&t) != "":
			p.plan.Obsolete = append(p.plan.Obsolete, t.Tablet)
			continue
		case (!ok || got != had) && t.Action == Keep:
			return fmt.Errorf("%w: tablet %d has its quorum, but some of its rows also belong to another tablet", ErrUnfit,
				t.Tablet)
		case !ok:
			p.plan.Obsolete = append(p.plan.Obsolete, t.Tablet)
			continue
		case got.start != had.start: // a split leaves the id with the lower rows
			return fmt.Errorf("%w: the first rows of tablet %d also belong to another tablet", ErrUnfit, t.Tablet)
		case got != had:
			d := had.less(got)[0].within(&pb.TabletDescriptor{TabletId: t.Tablet})
			t.Cleared = &Descriptor{d}
			got.within(t.Descriptor.TabletDescriptor)
		}
		p.plan.Tablets = append(p.plan.Tablets, t)
	}
	if err := p.fill(free); err != nil {
		return err
	}
	p.obsolete()
	for i := range p.plan.Tablets {
		p.newGroup(&p.plan.Tablets[i])
	}
	slices.SortFunc(p.plan.Tablets, func(a, b Tablet) int {
		return wire.StartOf(a.Descriptor.TabletDescriptor).Compare(wire.StartOf(b.Descriptor.TabletDescriptor))
	})
	return nil
}

// fill adds tablets for rows of which no replica remains, each with its id in the tablet map. It
// returns ErrGap if there are such rows without Options.AcceptGaps, or if the map does not name
// their tablets.
func (p *planner) fill(free []span) error {
	if len(free) == 0 {
		return nil
	}
	if len(p.found[cluster.MetaTablet]) == 0 || p.meta == nil {
		return fmt.Errorf("%w, including the meta tablet's: restore a backup", ErrGap)
	}
	var lost []uint64
	for _, d := range p.meta.Tablets {
		if p.planned(d.TabletId) {
			continue
		}
		got, ok := claim(&free, spanOf(d.TabletDescriptor))
		if !ok {
			continue
		}
		lost = append(lost, d.TabletId)
		p.plan.Tablets = append(p.plan.Tablets, Tablet{
			Tablet: d.TabletId, Action: Create, Node: p.plan.Stores[len(lost)%len(p.plan.Stores)].Node,
			Descriptor: Descriptor{got.within(proto.CloneOf(d.TabletDescriptor))},
			Index:      store.InitialIndex,
		})
	}
	switch {
	case len(free) > 0:
		return fmt.Errorf("%w: rows of tables %d to %d are among them, and the tablet map does not name their tablets; "+
			"restore a backup", ErrGap, free[0].start.Table, free[0].end.Table)
	case !p.opts.AcceptGaps:
		return fmt.Errorf("%w: those of tablets %d, which have lost all replicas", ErrGap, lost)
	}
	return nil
}

func (p *planner) planned(id uint64) bool {
	return slices.ContainsFunc(p.plan.Tablets, func(t Tablet) bool { return t.Tablet == id })
}

// obsolete lists the tablets that have replicas but are not in the plan.
func (p *planner) obsolete() {
	for id := range p.found {
		if !p.planned(id) {
			p.plan.Obsolete = append(p.plan.Obsolete, id)
		}
	}
	slices.Sort(p.plan.Obsolete)
	p.plan.Obsolete = slices.Compact(p.plan.Obsolete)
}

// newGroup sets the descriptor and the term of a tablet with a new group: epoch, id and term are above
// all known ones of the tablet.
func (p *planner) newGroup(t *Tablet) {
	if t.Action == Keep {
		t.Node = 0
		return
	}
	d := t.Descriptor.TabletDescriptor
	id, epoch := uint64(group.FirstReplica), d.Epoch
	learn := func(k *pb.TabletDescriptor) {
		epoch, id = max(epoch, k.GetEpoch()), max(id, k.GetNextReplicaId())
		for _, r := range k.GetReplicas() {
			id = max(id, r.ReplicaId+1)
		}
	}
	learn(d)
	t.Term = store.InitialTerm
	for _, c := range p.found[t.Tablet] {
		learn(c.Stored.TabletDescriptor)
		learn(c.Final.TabletDescriptor)
		id, t.Term = max(id, c.Replica.Replica+1), max(t.Term, c.Term)
	}
	if p.meta != nil {
		for _, k := range p.meta.Tablets {
			if k.TabletId == t.Tablet {
				learn(k.TabletDescriptor)
			}
		}
	}
	id += replicaLead
	t.Term++
	d.Epoch, d.NextReplicaId = epoch+epochLead, id+1
	d.Replicas = []*pb.Replica{{ReplicaId: id, NodeId: t.Node}}
}

// raise sets the plan's Floors, Highest and Mark, from the highest values in all inspections.
func (p *planner) raise() error {
	f := &p.plan.Floors
	for id := range p.found {
		f.Tablet = max(f.Tablet, id)
	}
	for _, in := range p.all {
		p.plan.Highest = max(p.plan.Highest, in.Highest)
		f.Table, f.Catalogue = max(f.Table, in.Table), max(f.Catalogue, in.Catalogue)
	}
	if at := time.UnixMilli(mvcc.Timestamp(p.plan.Highest).Millis()); at.Sub(p.opts.Now) > maxAhead {
		return fmt.Errorf("%w: the highest timestamp in the stores is of %s, far ahead of this machine's clock: set the clock", ErrUnfit, at)
	}
	f.Tablet, f.Table = f.Tablet+idLead, f.Table+idLead
	for _, t := range p.plan.Tablets {
		if t.Tablet == cluster.MetaTablet && t.Action == Recover {
			p.plan.Mark = p.plan.Highest + uint64(mvcc.TimestampAt(markLead.Milliseconds()))
		}
	}
	return nil
}

// Nodes returns the nodes to which the plan must be applied.
func (p *Plan) Nodes() (ids []uint64) {
	for _, s := range p.Stores {
		ids = append(ids, s.Node)
	}
	return ids
}

// DeadAt returns, by node, the known addresses of the nodes that the plan declares dead.
func (p *Plan) DeadAt(all []*Inspection) map[uint64][]string {
	out := map[uint64][]string{}
	learn := func(nodes []Node) {
		for _, n := range nodes {
			if slices.Contains(p.Dead, n.Node) {
				out[n.Node] = append(out[n.Node], n.Addresses...)
			}
		}
	}
	for _, in := range all {
		if learn(in.Nodes); in.Meta != nil {
			learn(in.Meta.Nodes)
		}
	}
	return out
}
