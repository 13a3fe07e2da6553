package snapshot

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/writers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// How a replica's state is replaced. While it happens, the replica's actor is stopped and
// all its writes are done: nothing else reads or writes its range, state or log. The
// whole snapshot is staged in the store before; then
//
//  1. a durable marker says that the range is being filled, and with what state;
//  2. the range is cleared, and the staged entries copied into the range, in as many
//     batches as it takes;
//  3. one batch brings the state, the Applied record and the log's new place into force,
//     and takes the marker away;
//  4. the staged entries are deleted.
//
// A crash before 1 leaves the replica as it was; one after it finds the marker at the
// next start, and begins again with 2. Raft takes the loss of acknowledged entries for a
// broken log, and a leader that knows of them would not send them again.
//
// Removing a replica is the same without a snapshot: 1 takes its state away and leaves a
// tombstone beside the marker, 2 clears, 3 takes the marker away.

// Installer replaces, makes and removes the replicas of a store, on the goroutine of
// whoever calls it; its writes go through the state actor. All its methods wait for the
// disk, except Arrive.
type Installer struct {
	store   *store.Store
	writers *writers.Pair
	cut     func(step string) error // tests: called before each write; nil: goes on
}

// NewInstaller returns the installer of a store.
func NewInstaller(st *store.Store, w *writers.Pair) *Installer {
	return &Installer{store: st, writers: w}
}

// Install brings the staged snapshot into force; before is the replica's descriptor so
// far, whose range must hold the snapshot's but for that of the taken tablets. The same step
// removes the replicas of these, which have stopped: they must exist until the replica no
// longer needs them for the entries by which its tablet has taken their rows. After an error
// the replica must not be opened before Finish, or Recover, has succeeded.
func (a *Arrival) Install(before *pb.TabletDescriptor, taken []Replica) error {
	i := a.installer
	if !a.whole {
		return fmt.Errorf("%w: it is not whole", ErrOrder)
	}
	marker := proto.CloneOf(a.marker)
	if before != nil && !wire.EmptyRange(before) {
		marker.Tablet = hull(before, marker.Tablet) // what a split has taken from it since goes too
	}
	b := &store.Batch{}
	for _, r := range taken {
		marker.Tablet = hull(marker.Tablet, r.Descriptor)
		if err := putGone(b, r.Tablet); err != nil {
			return err
		}
	}
	if err := putInstalling(b, marker); err != nil {
		return err
	}
	if err := i.write("marker", b); err != nil {
		return err
	}
	return i.finish(marker)
}

// hull returns a, which begins no later than b, with the later end of both.
func hull(a, b *pb.TabletDescriptor) *pb.TabletDescriptor {
	end, bounded := wire.EndOf(a)
	other, otherBounded := wire.EndOf(b)
	if bounded && (!otherBounded || end.Less(other)) {
		a = proto.CloneOf(a)
		a.EndTable, a.EndRow, a.EndUnbounded = b.EndTable, b.EndRow, b.EndUnbounded
	}
	return a
}

// putInstalling adds a marker to the batch.
func putInstalling(b *store.Batch, marker *wire.Installing) error {
	record, err := proto.Marshal(marker)
	if err != nil {
		return fmt.Errorf("tablet %d: marker: %w", marker.TabletId, err)
	}
	b.PutInstalling(marker.TabletId, record)
	return nil
}

// write commits a batch in the state actor's order and waits for it.
func (i *Installer) write(step string, b *store.Batch) error {
	if i.cut != nil {
		if err := i.cut(step); err != nil {
			return err
		}
	}
	return i.writers.Commit(b)
}

// finish does what a marker asks for, from the beginning: each step may have been done
// already, in part or as a whole.
func (i *Installer) finish(marker *wire.Installing) error {
	id := marker.TabletId
	snap := i.store.SnapWithLocks()
	defer snap.Close()
	if err := i.clear("clear", snap.Cursor(Rows(marker.Tablet))); err != nil {
		return err
	}
	b := &store.Batch{}
	// Without a replica the marker only clears a range.
	if marker.ReplicaId != 0 {
		if err := i.fill(snap.Staged(id)); err != nil {
			return err
		}
		state := &wire.TabletState{}
		if err := proto.Unmarshal(marker.State, state); err != nil {
			return fmt.Errorf("tablet %d: state of a snapshot: %w", id, err)
		}
		b.PutTabletState(id, marker.State)
		b.PutApplied(id, store.Applied{
			Index: marker.Index, Term: marker.Term, Epoch: state.GetTablet().GetEpoch(),
			Bytes: state.GetSized().GetBytes(), Rough: state.GetSized() == nil,
		})
		b.InitialLog(id, marker.Index, marker.Term)
	}
	b.DeleteInstalling(id)
	if err := i.write("flip", b); err != nil {
		return err
	}
	return i.clear("unstage", snap.Staged(id))
}

// clear deletes what the cursor finds, a batch at a time.
func (i *Installer) clear(step string, c *store.Cursor) error {
	for {
		b := &store.Batch{}
		n, err := c.Delete(b)
		if n == 0 || err != nil {
			return err
		}
		if err := i.write(step, b); err != nil {
			return err
		}
	}
}

// fill copies the staged entries to their place in the range.
func (i *Installer) fill(staged *store.Cursor) error {
	for {
		entries, err := staged.Next(maxPieceEntries, defaultPiece)
		if len(entries) == 0 || err != nil {
			return err
		}
		all := newBatches()
		for _, e := range entries {
			all.room(store.Cost(e.Key, e.Value)).Put(e.Key, e.Value)
		}
		for _, b := range all.list {
			if err := i.write("fill", b); err != nil {
				return err
			}
		}
	}
}

// Recover completes the installations that a crash has cut short, and drops what was
// staged for none. Call it before any replica is opened, and again after an Install that
// failed.
func (i *Installer) Recover() error {
	snap := i.store.Snap()
	defer snap.Close()
	for e, err := range snap.Installings() {
		if err != nil {
			return err
		}
		if err := i.recoverRange(e.State); err != nil {
			return err
		}
	}
	after := i.store.Snap()
	defer after.Close()
	ids, err := after.StagedTablets()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := i.clear("unstage", after.Staged(id)); err != nil {
			return err
		}
	}
	return nil
}

func (i *Installer) recoverRange(record []byte) error {
	marker := &wire.Installing{}
	if err := proto.Unmarshal(record, marker); err != nil {
		return fmt.Errorf("snapshot: marker of an installation: %w", err)
	}
	return i.finish(marker)
}

// Finish does for one tablet what Recover does for all; without a marker it does nothing.
// It is needed where an installation failed for want of space, and after a split that made
// a tablet whose replica here had been removed before: its rows are cleared under a
// marker. The tablet must not be open.
func (i *Installer) Finish(tablet uint64) error {
	snap := i.store.Snap()
	record, ok, err := snap.Installing(tablet)
	snap.Close()
	if !ok || err != nil {
		return err
	}
	return i.recoverRange(record)
}

// ErrUnfinished means that an installation has begun and needs what is staged to be
// completed. Finish does that, or the next start.
var ErrUnfinished = errors.New("snapshot: an installation is not finished")

// Unstage drops what is staged for a tablet. It returns ErrUnfinished if an installation
// still needs it.
func (i *Installer) Unstage(tablet uint64) error {
	snap := i.store.Snap()
	defer snap.Close()
	if _, marked, err := snap.Installing(tablet); marked || err != nil {
		return errors.Join(ErrUnfinished, err)
	}
	return i.clear("unstage", snap.Staged(tablet))
}
