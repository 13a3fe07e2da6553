package salvage

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/percolator-go/percolator/actors/tablet"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// Application of a plan to one store. Every step is idempotent, because an interrupted Apply may have
// executed it before.

var (
	// ErrOtherStore reports that the plan is not for this store or of another format, or that the node
	// has run since it was inspected.
	ErrOtherStore = errors.New("salvage: the plan does not fit this directory")
	// ErrApplied reports that the plan was already applied to the store. Nothing was changed.
	ErrApplied = errors.New("salvage: the plan has already been applied to this directory")
)

// applying is one Apply.
type applying struct {
	plan *Plan
	st   *store.Store
	node uint64
	note join.Recovery // the record of the recovery
	// step is called before each write; its error ends the Apply there. For tests.
	step func() error
}

// Apply applies the plan to the store of one of its nodes; by names the operator, for the audit log.
// Once Apply has begun, the node does not start until an Apply of the same plan has succeeded. No other
// process may have the store open. Errors: ErrNoNode, ErrOtherStore, ErrApplied, and
// join.ErrUnfinishedRecovery if another plan was begun.
func Apply(st *store.Store, plan *Plan, by string) error {
	return apply(st, plan, by, func() error { return nil })
}

func apply(st *store.Store, plan *Plan, by string, step func() error) error {
	self, known, err := join.ReadStored(st)
	if err != nil || !known {
		return errors.Join(err, ErrNoNode)
	}
	a := &applying{plan: plan, st: st, node: self.NodeID, step: step, note: join.Recovery{
		Plan: plan.ID, At: plan.Made, By: by, Dead: plan.Dead, Highest: plan.Highest,
	}}
	for _, t := range plan.Tablets {
		if t.Action != Keep {
			a.note.Tablets = append(a.note.Tablets, t.Tablet)
		}
	}
	if err := a.check(self); err != nil {
		return err
	}
	steps := []func() error{
		func() error { return a.putRecovery(self.Recovery) },
		a.settle, a.discard, a.clear, a.reform,
		func() error {
			a.note.Applied = true
			return a.putRecovery(self.Recovery)
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("salvage: apply plan %s: %w", plan.ID, err)
		}
	}
	return nil
}

// check returns ErrOtherStore if the plan was not made from the store, or something other than an
// Apply of this plan has changed the store since.
func (a *applying) check(self join.Stored) error {
	i := slices.IndexFunc(a.plan.Stores, func(s Store) bool { return s.Node == self.NodeID })
	switch {
	case a.plan.Format != format:
		return fmt.Errorf("%w: the plan has format %d, this build supports %d", ErrOtherStore, a.plan.Format, format)
	case self.ClusterID != a.plan.Cluster || i < 0:
		return fmt.Errorf("%w: the directory is that of node %d of cluster %s", ErrOtherStore, self.NodeID, self.ClusterID)
	case self.Recovery.Plan == a.plan.ID && self.Recovery.Applied:
		return ErrApplied
	case self.Recovery.Plan == a.plan.ID:
		return nil
	}
	in, err := Inspect(a.st) // fails if another plan is partially applied
	if err != nil {
		return err
	}
	if in.Fingerprint != a.plan.Stores[i].Fingerprint {
		return fmt.Errorf("%w: the directory of node %d has changed since its inspection; make a new plan", ErrOtherStore, self.NodeID)
	}
	return nil
}

// commit commits one batch.
func (a *applying) commit(b *store.Batch) error {
	if err := a.step(); err != nil {
		return err
	}
	return a.st.StateWriter().Commit([]*store.Batch{b})
}

// putRecovery writes the record of the recovery.
func (a *applying) putRecovery(before join.Recovery) error {
	b := &store.Batch{}
	if err := join.PutRecovery(b, before, a.note); err != nil {
		return err
	}
	return a.commit(b)
}

// settle applies the logs of this store's surviving replicas up to the entry before Tablet.Index,
// the last one. That creates the replicas of splits in those logs and executes their merges. It
// repeats until it has done so for all such replicas.
func (a *applying) settle() error {
	for done := map[uint64]bool{}; ; {
		before := len(done)
		for _, t := range a.own(Recover) {
			r, ok, err := snapshot.StoredReplica(a.st, t.Tablet)
			if err != nil {
				return err
			}
			if !ok || done[t.Tablet] || a.reformed(&r, t) {
				continue
			}
			if err := a.step(); err != nil {
				return err
			}
			if err := tablet.ApplyLog(a.st, t.Tablet, t.Index-1); err != nil {
				return err
			}
			done[t.Tablet] = true
		}
		if len(done) == before {
			return nil
		}
	}
}

// own returns the tablets with the action whose survivor is in this store.
func (a *applying) own(action string) (out []*Tablet) {
	for i := range a.plan.Tablets {
		if t := &a.plan.Tablets[i]; t.Node == a.node && t.Action == action {
			out = append(out, t)
		}
	}
	return out
}

// reformed reports whether the replica already belongs to the tablet's new group.
func (a *applying) reformed(r *snapshot.Replica, t *Tablet) bool {
	return r.Descriptor.GetEpoch() >= t.Descriptor.Epoch
}

// discard removes the replicas of tablets that survive in another store, or are obsolete. A
// tombstone keeps messages for them from reaching the new group.
func (a *applying) discard() error {
	next := map[uint64]uint64{}
	for _, t := range a.plan.Tablets {
		if t.Action != Keep && t.Node != a.node {
			next[t.Tablet] = t.Descriptor.Replicas[0].ReplicaId + 1
		}
	}
	for _, id := range a.plan.Obsolete {
		next[id] = 0
	}
	return installing(a.st, func(i *snapshot.Installer) error {
		for _, id := range slices.Sorted(maps.Keys(next)) {
			r, ok, err := snapshot.StoredReplica(a.st, id)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			if err := a.step(); err != nil {
				return err
			}
			if err := i.Destroy(id, max(next[id], r.ReplicaID+1)); err != nil {
				return err
			}
		}
		return nil
	})
}

// clear deletes rows of this store's survivors that belong to another tablet.
func (a *applying) clear() error {
	return installing(a.st, func(i *snapshot.Installer) error {
		for _, t := range a.own(Recover) {
			r, ok, err := snapshot.StoredReplica(a.st, t.Tablet)
			if err != nil {
				return err
			}
			if t.Cleared == nil || !ok || a.reformed(&r, t) {
				continue
			}
			b := &store.Batch{}
			if err := snapshot.PutClearing(b, t.Cleared.TabletDescriptor); err != nil {
				return err
			}
			if err := a.commit(b); err != nil {
				return err
			}
			if err := i.Finish(t.Tablet); err != nil {
				return err
			}
		}
		return nil
	})
}

// reform creates the new groups of the tablets that survive here.
func (a *applying) reform() error {
	for _, t := range append(a.own(Recover), a.own(Create)...) {
		r, ok, err := snapshot.StoredReplica(a.st, t.Tablet)
		if err != nil {
			return err
		}
		if ok && a.reformed(&r, t) {
			continue
		}
		b, d := &store.Batch{}, t.Descriptor.TabletDescriptor
		switch {
		case t.Action == Create:
			tablet.Bootstrap(b, d, d.Replicas[0].ReplicaId)
		case t.Tablet == cluster.MetaTablet:
			err = errors.Join(tablet.Reform(b, a.st, d, t.Index, t.Term, a.plan.Mark), a.metaRows(b))
		default:
			err = tablet.Reform(b, a.st, d, t.Index, t.Term, 0)
		}
		if err == nil {
			err = a.commit(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// metaRows adds the changes of meta's rows by meta.Recovered: the recovery's record and the plan's
// Floors.
func (a *applying) metaRows(b *store.Batch) error {
	snap := a.st.Snap()
	rows, err := metaRows(snap)
	snap.Close()
	if err != nil {
		return err
	}
	changes, err := meta.Recovered(rows, a.note.Message(), a.plan.Floors)
	if err != nil {
		return err
	}
	for _, row := range slices.Sorted(maps.Keys(changes)) {
		m := mvcc.Mutation{
			Group: mvcc.GroupRaw, Cell: mvcc.Cell{Table: mvcc.MetaTable, Row: row},
			Value: changes[row], Delete: changes[row] == nil,
		}
		encoder := store.NewEncoder([]mvcc.Mutation{m}, true)
		if key, value := encoder.Encode(&m); m.Delete {
			b.Delete(key)
		} else {
			b.Put(key, value)
		}
	}
	return nil
}
