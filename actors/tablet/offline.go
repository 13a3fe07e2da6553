package tablet

import (
	"fmt"
	"math"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/percolator-go/percolator/actors/tablet/group"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// Offline operations on the replicas of a store that no node has open: Inspect previews the
// state that a replica's log leads to, ApplyLog applies that log, and Reform makes a replica
// the only one of its tablet (docs/adr/0055). Every function runs on its caller's goroutine,
// and nothing else may write to the store.

// Outlook describes a replica as stored, and as it will be once its whole log is applied,
// whether or not the entries are known to be committed.
type Outlook struct {
	Replica uint64
	// Stored is the tablet as of Applied, Settled as of Committed, Final as of Last.
	Stored, Settled, Final *pb.TabletDescriptor

	Applied   uint64 // index of the last applied entry
	Committed uint64 // index of the last entry that the replica knows to be committed
	Last      uint64 // index of the last entry in its log
	LastTerm  uint64 // term of the last entry
	Term      uint64 // highest term that the replica has seen
	// Born are the right sides of unapplied splits in the log, as of the split. The store has no
	// replica of them.
	Born []*pb.TabletDescriptor
	// Takings are the unapplied entries in the log by which the tablet takes another's rows.
	Takings []Taking
	// Frozen is the tablet that this one is frozen for as of Last; nil means none.
	Frozen    *pb.TabletDescriptor
	Mark      uint64 // the oracle's, in the meta tablet
	Bound     mvcc.Timestamp
	Safepoint mvcc.Timestamp
	Catalogue uint64 // version of the catalogue
}

// Taking describes a log entry that merges another tablet into this one (docs/adr/0053).
type Taking struct {
	Right       *pb.TabletDescriptor // the frozen tablet
	Before      *pb.TabletDescriptor // the tablet that takes its rows, before the entry
	Index, Term uint64               // position of the entry before the merging one
}

// Inspect returns the outlook of the tablet's replica, and calls effect for each effect of the
// unapplied entries that are not dropped, in order. It changes nothing. For a replica that waits
// for its first snapshot, Stored has epoch 0.
func Inspect(st *store.Store, id uint64, effect func(*wire.Effect)) (*Outlook, error) {
	before, err := storedState(st, id)
	if err != nil {
		return nil, fmt.Errorf("read the stored state of tablet %d: %w", id, err)
	}
	log, err := st.OpenLog(id)
	if err != nil {
		return nil, err
	}
	hard, _, err := log.InitialState()
	if err != nil {
		return nil, err
	}
	out := &Outlook{
		Replica: before.replica, Stored: before.descriptor, Settled: before.descriptor,
		Applied: before.index, Term: hard.GetTerm(), Committed: max(hard.GetCommit(), before.index),
	}
	at := before // as of the entry before
	after, err := replay(st, id, math.MaxUint64, func(_ *store.Batch, s *state, c *wire.Command) error {
		if m := c.GetMerge(); m.GetRight() != nil {
			out.Takings = append(out.Takings, Taking{m.Right, at.descriptor, at.index, at.entryTerm})
		}
		at = *s
		if s.index <= out.Committed {
			out.Settled = s.descriptor
		}
		for _, f := range c.GetEffects() {
			effect(f)
		}
		if right := c.GetSplit().GetRight(); right != nil {
			there, err := skipChild(&store.Batch{}, st, s.replica, right)
			if err != nil {
				return err
			}
			if !there {
				out.Born = append(out.Born, right)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out.Final, out.Mark, out.Bound = after.descriptor, after.mark, after.appliedBound
	out.Safepoint, out.Catalogue = after.appliedSafepoint, after.appliedCatalogue.Version()
	out.Last, out.LastTerm, out.Frozen = after.index, after.entryTerm, after.frozen
	return out, nil
}

// ApplyLog applies the log of the tablet's replica up to the entry last, including entries that
// are not known to be committed. It creates the replicas that splits in it begin, and merges the
// replicas of tablets whose rows the tablet takes, which the store must hold as they were frozen.
// It may be repeated after a crash. Errors: snapshot.ErrNotFrozen.
func ApplyLog(st *store.Store, id, last uint64) error {
	_, err := replay(st, id, last, func(b *store.Batch, s *state, c *wire.Command) (err error) {
		took := c.GetMerge().GetRight() != nil
		if took {
			b = &store.Batch{}
			err = snapshot.PutMerge(b, st, &snapshot.Merge{
				Right: c.Merge.Right, Merged: c.Merge.Tablet, Index: s.index, Term: s.entryTerm,
			})
		}
		if err == nil {
			err = st.StateWriter().Commit([]*store.Batch{b})
		}
		if err == nil && took {
			*s, err = storedState(st, id)
		}
		return err
	})
	return err
}

// replay calls the function each once per unapplied entry, in order, up to the entry end, with the
// writes of applying it, the state after it, which the function may replace, and its command, which
// is nil if the entry has none or is dropped. Of an entry that takes another tablet's rows the
// writes lack the merge of the two replicas. It returns the state after the last entry.
func replay(st *store.Store, id, end uint64,
	each func(*store.Batch, *state, *wire.Command) error) (*state, error) {
	s, err := storedState(st, id)
	if err != nil {
		return nil, fmt.Errorf("read the stored state of tablet %d: %w", id, err)
	}
	log, err := st.OpenLog(id)
	if err != nil {
		return nil, err
	}
	last, err := log.LastIndex()
	if err != nil {
		return nil, err
	}
	last = min(last, end)
	for s.index < last {
		entries, err := log.Entries(s.index+1, last+1, replayBytes)
		if err != nil {
			return nil, fmt.Errorf("tablet %d: read its log: %w", id, err)
		}
		for _, e := range entries {
			b := &store.Batch{}
			c, err := s.replayEntry(b, st, e)
			if err != nil {
				return nil, fmt.Errorf("tablet %d: replay entry %d: %w", id, e.GetIndex(), err)
			}
			s.index, s.entryTerm = e.GetIndex(), e.GetTerm()
			s.putApplied(b, id)
			if err := each(b, &s, c); err != nil {
				return nil, err
			}
		}
	}
	return &s, nil
}

// replayBytes limits the entries read from a log at a time.
const replayBytes = 8 << 20

// replayEntry applies an entry to the state, without a group. It returns the entry's command, nil
// if there is none or it is dropped.
func (s *state) replayEntry(b *store.Batch, st *store.Store, e *raftpb.Entry) (*wire.Command, error) {
	_, command, err := decodeEntry(e, true)
	if err != nil {
		return nil, err
	}
	c, err := s.apply(b, st, command)
	switch {
	case err != nil || c.dropped:
		return nil, err
	case c.merge.GetRight() != nil:
		s.descriptor, s.took, s.stateChanged = c.merge.Tablet, c.merge.Right, true
	}
	if kind := unreplayable(command); kind != "" {
		return nil, fmt.Errorf("it has a %s, which only a running node can apply", kind)
	}
	return command, nil
}

// replayable are the fields of a command that state.apply and replayEntry apply, or that change
// nothing in the store.
var replayable = []protoreflect.Name{
	"epoch", "proposal", "effects", "split", "catalogue", "raise_mark", "bound", "safepoint",
	"checksum", "replicas", "sized", "traces", "merge",
}

// unreplayable returns the name of a field of the command that is not replayable, or "". If
// such an entry were skipped, this replica would diverge from its group.
func unreplayable(c *wire.Command) (kind string) {
	c.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !slices.Contains(replayable, f.Name()) {
			kind = string(f.Name())
		}
		return kind == ""
	})
	return kind
}

// Reform adds to the batch what makes the tablet's replica, whose whole log is applied, the
// only one of its tablet after the entry (index, term), which is above all entries of its log. d is
// the tablet from then on and names the replica by a new id, since messages to the former id are
// for the former group. A tablet that is frozen for a merge is released. A mark below mark is
// raised to it.
func Reform(b *store.Batch, st *store.Store, d *pb.TabletDescriptor, index, term,
	mark uint64) error {
	if n := len(d.GetReplicas()); n != 1 {
		return fmt.Errorf("tablet %d: a group is recreated with one replica, not %d", d.GetTabletId(), n)
	}
	s, err := storedState(st, d.TabletId)
	if err != nil {
		return fmt.Errorf("read the stored state of tablet %d: %w", d.TabletId, err)
	}
	if s.index >= index || s.descriptor.GetEpoch() >= d.Epoch {
		return fmt.Errorf("tablet %d: its entry %d of epoch %d is applied; entry %d of epoch %d does not "+
			"follow it", d.TabletId, s.index, s.descriptor.GetEpoch(), index, d.Epoch)
	}
	s.replica, s.descriptor, s.conf = d.Replicas[0].ReplicaId, d, group.ConfState(d)
	s.index, s.entryTerm, s.frozen = index, term, nil
	s.mark = max(s.mark, mark)
	s.putNew(b)
	return nil
}
