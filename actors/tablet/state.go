package tablet

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/group"
	"github.com/percolator-go/percolator/actors/tablet/memory"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// The replicated state of a tablet, in its store and in memory, and how an entry changes it.
// open runs once, before the first turn. After that state changes only in the tablet's
// turns, in apply, and each change is part of its entry's batch; a replica that learns of its
// removal also adopts the descriptor that removes it. The copy in memory is ahead of the
// store by the entries that are under way to the state actor.

// MetaTabletID is the tablet that holds the cluster's own tables and the oracle's mark.
const MetaTabletID = 1

var errLost = errors.New("a later term began, a quorum was silent, or this replica lost its vote")

// state is what all replicas of the tablet agree on as of index (design section 3, last row
// of the table), and in addition replica, sibling and frozenAt, which are this replica's own.
type state struct {
	// This replica's id in the group, which is not replicated.
	replica    uint64
	conf       *raftpb.ConfState // as of index
	descriptor *pb.TabletDescriptor
	// The right side of the last split here, to correct senders' maps; not replicated.
	sibling          *pb.TabletDescriptor
	appliedCatalogue *memory.Catalogue
	appliedBound     mvcc.Timestamp
	appliedSafepoint mvcc.Timestamp
	mark             uint64 // the oracle's, in the meta tablet
	index, entryTerm uint64 // of the last entry sent to the state actor
	// Estimated size of the rows as of index, from the effects and from leaders'
	// measurements.
	bytes        uint64
	rough        bool // bytes is inexact, such as after a split, until a leader measures it
	stateChanged bool // the next apply writes the whole state

	frozen *pb.TabletDescriptor // the tablet that will take this one's rows; nil: none
	took   *pb.TabletDescriptor // whose rows this tablet has taken, until its release; nil: none
	// Index of the last freeze or release since this replica was opened; 0: none.
	frozenAt uint64
}

// put adds the whole state to the batch, except the applied index, which is in a separate record,
// because it changes with every entry.
func (s *state) put(b *store.Batch, id uint64) {
	m := &wire.TabletState{
		Tablet: s.descriptor, Bound: uint64(s.appliedBound), Safepoint: uint64(s.appliedSafepoint),
		Catalogue: s.appliedCatalogue.Message, OracleMark: s.mark, ReplicaId: s.replica,
		FrozenFor: s.frozen, Took: s.took,
	}
	conf, err := proto.Marshal(s.conf)
	m.ConfState = conf
	data, failed := proto.Marshal(m)
	if err := errors.Join(err, failed); err != nil { // a broken invariant: all fields are our own
		panic(fmt.Sprintf("tablet: own state cannot be marshalled: %v", err))
	}
	b.PutTabletState(id, data)
}

// putNew adds the state of a replica whose log begins after index.
func (s *state) putNew(b *store.Batch) {
	id := s.descriptor.TabletId
	s.put(b, id)
	b.PutApplied(id, s.applied())
	b.InitialLog(id, s.index, s.entryTerm)
}

// applied returns the Applied record as of index.
func (s *state) applied() store.Applied {
	return store.Applied{
		Index: s.index, Term: s.entryTerm, Epoch: s.descriptor.Epoch, Bytes: s.bytes,
		Rough: s.rough,
	}
}

// change describes the changes of one entry. Each part of the tablet uses its own part of it
// (Tablet.applyChange in the turn of the entry, Tablet.onApplied once its effects are visible). The
// zero value is that of an entry that changes nothing.
type change struct {
	effects []*wire.Effect // on rows
	// dropped: the entry was evaluated under another epoch, the tablet is frozen, or raft refused
	// the change of replicas. Every replica drops it.
	dropped   bool
	split     *wire.Split
	merge     *wire.Merge
	replicas  *pb.TabletDescriptor // the descriptor after a change of the replicas
	catalogue *memory.Catalogue    // nil: unchanged
	bound     mvcc.Timestamp       // as applied, like safepoint; 0: the entry names neither
	safepoint mvcc.Timestamp
	measured  bool   // the size was measured by a leader
	checksum  uint64 // id of the checksum to compute; 0: none
}

// apply applies a command to the state, adds its writes to the batch, and returns the
// changes. The caller sets the applied index. The entry that takes another tablet's rows
// (Merge.Right) changes nothing here: the replica stops.
func (s *state) apply(b *store.Batch, st *store.Store, c *wire.Command) (change, error) {
	// The entry was evaluated under another range or other replicas, or the tablet is frozen. Every
	// replica drops it, since all have the same state at this entry.
	if c.Epoch != s.descriptor.GetEpoch() || s.frozen != nil && !releases(c) {
		return change{dropped: true}, nil
	}
	out := change{effects: c.Effects, checksum: c.Checksum}
	b.Grow(len(c.Effects))
	for _, f := range c.Effects {
		if f.Delete {
			b.Delete(f.Key)
		} else {
			b.Put(f.Key, f.Value)
		}
		s.addSize(f)
	}
	switch {
	case c.Split != nil:
		out.split = c.Split
		return out, s.split(b, st, c.Split)
	case c.Merge != nil:
		out.merge = c.Merge
		if c.Merge.Right == nil {
			s.applyMerge(b, c.Merge)
		}
	case c.Replicas != nil:
		out.replicas = c.Replicas
		s.descriptor, s.conf, s.stateChanged = c.Replicas, group.ConfState(c.Replicas), true
	case c.Catalogue != nil:
		// Versions only rise.
		if c.Catalogue.Version > s.appliedCatalogue.Version() {
			s.appliedCatalogue, s.stateChanged = memory.NewCatalogue(c.Catalogue), true
			out.catalogue = s.appliedCatalogue
		}
	case c.Sized != nil:
		// A leader's measurement replaces the count from the effects.
		s.bytes, s.rough, out.measured = c.Sized.Bytes, false, true
	case c.Bound != 0 || c.Safepoint != 0:
		s.raise(c)
		out.bound, out.safepoint = s.appliedBound, s.appliedSafepoint
	case c.RaiseMark > s.mark:
		s.mark, s.stateChanged = c.RaiseMark, true
	}
	return out, nil
}

// addSize adds an effect to the tablet's size. Every replica must get the same result, so it
// depends only on the effect.
func (s *state) addSize(f *wire.Effect) {
	switch {
	case !store.Weighed(f.Key):
	case f.Delete:
		s.bytes -= min(s.bytes, uint64(len(f.Key)))
	default:
		s.bytes += uint64(len(f.Key) + len(f.Value))
	}
}

// raise raises the bound or the safepoint to that of an entry. Neither is ever lowered.
func (s *state) raise(c *wire.Command) {
	if bound := mvcc.Timestamp(c.Bound); bound > s.appliedBound {
		s.appliedBound, s.stateChanged = bound, true
	}
	if safepoint := mvcc.Timestamp(c.Safepoint); safepoint > s.appliedSafepoint {
		s.appliedSafepoint, s.stateChanged = safepoint, true
	}
}

// putApplied adds the Applied record to the batch, and the whole state if it has changed.
func (s *state) putApplied(b *store.Batch, id uint64) {
	if s.stateChanged {
		s.stateChanged = false
		s.put(b, id)
	}
	b.PutApplied(id, s.applied())
}

// Bootstrap adds the state of a new tablet's replica to the batch. The descriptor names the
// group's members; if it names none, this replica is the only voter.
func Bootstrap(b *store.Batch, d *pb.TabletDescriptor, replica uint64) {
	s := state{
		replica: replica, conf: group.ConfState(d), descriptor: d,
		appliedCatalogue: memory.NewCatalogue(&pb.Catalogue{}),
		index:            store.InitialIndex, entryTerm: store.InitialTerm,
	}
	if len(d.GetReplicas()) == 0 {
		s.conf.Voters = []uint64{replica}
	}
	s.putNew(b)
}

// Limits of a group: a few of the largest batches (8 MiB).
const (
	maxUncommitted = 128 << 20 // bytes proposed and not yet applied; more are refused
	maxInflight    = 32 << 20  // bytes in flight to one replica
)

// storedState reads the state of the tablet's replica.
func storedState(st *store.Store, id uint64) (state, error) {
	c, err := snapshot.Capture(st.Snap(), id)
	if err != nil {
		return state{}, err
	}
	c.Snap.Close()
	m, a := c.State, c.Applied
	return state{
		replica: m.ReplicaId, conf: c.Conf, descriptor: m.Tablet, mark: m.OracleMark,
		appliedCatalogue: memory.NewCatalogue(m.Catalogue),
		appliedBound:     mvcc.Timestamp(m.Bound), appliedSafepoint: mvcc.Timestamp(m.Safepoint),
		index: a.Index, entryTerm: a.Term, bytes: a.Bytes, rough: a.Rough, frozen: m.FrozenFor,
		took: m.Took,
	}, nil
}
