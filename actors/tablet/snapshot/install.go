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

// Replacement of a replica's state by a snapshot. The replica's actor must have stopped, and its
// writes be complete: nothing else reads or writes its range, state or log. The whole snapshot has
// been staged in the store before. Then
//
//  1. one batch writes a durable marker, that the range is being filled, with the new state, and
//     removes the replicas of tablets that were merged into this one;
//  2. the range is cleared and the staged entries are copied into it, in as many batches as
//     necessary;
//  3. one batch sets the state, the Applied record and the log's new position, and removes the
//     marker;
//  4. the staged entries are deleted.
//
// A crash before 1 leaves the replica unchanged. After 1, the next start finds the marker and
// repeats from 2: it cannot return to the old state, because Raft treats the loss of acknowledged
// entries as a broken log, and a leader that has recorded the acknowledgment does not resend them.
//
// Removing a replica is the same without a snapshot: 1 deletes its state and writes a tombstone
// with the marker, 2 clears the range, 3 removes the marker.

// Installer replaces, creates and removes the replicas of a store, on the caller's goroutine; its
// writes go through the state actor. All methods except Arrive wait for the disk.
type Installer struct {
	store   *store.Store
	writers *writers.Pair
	cut     func(step string) error // for tests: called before each write, which fails with its error
}

// NewInstaller returns the installer of a store.
func NewInstaller(st *store.Store, w *writers.Pair) *Installer {
	return &Installer{store: st, writers: w}
}

// Install replaces the replica's state by the staged snapshot. before is the replica's descriptor
// so far; its range is cleared with the snapshot's. taken are the replicas of tablets that were
// merged into this one. They must have stopped, and step 1 removes them: from then on the replica
// never applies the entries of the merges. After an error the replica must not be opened before
// Finish or Recover has succeeded.
func (a *Arrival) Install(before *pb.TabletDescriptor, taken []Replica) error {
	i := a.installer
	if !a.whole {
		return fmt.Errorf("%w: pieces are missing", ErrOrder)
	}
	marker := proto.CloneOf(a.marker)
	if before != nil && !wire.EmptyRange(before) {
		marker.Tablet = hull(before, marker.Tablet) // also clear what the tablet has lost by splits
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

// hull returns a, which must begin no later than b, with the later end of both.
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
		return fmt.Errorf("encode the installation marker of tablet %d: %w", marker.TabletId, err)
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

// finish completes the installation of a marker, from step 2 on. Each step may have been executed
// before, in part or as a whole.
func (i *Installer) finish(marker *wire.Installing) error {
	id := marker.TabletId
	snap := i.store.SnapWithLocks()
	defer snap.Close()
	if err := i.clear("clear", snap.Cursor(Rows(marker.Tablet))); err != nil {
		return err
	}
	b := &store.Batch{}
	// Without a replica id the marker only clears a range.
	if marker.ReplicaId != 0 {
		if err := i.fill(snap.Staged(id)); err != nil {
			return err
		}
		state := &wire.TabletState{}
		if err := proto.Unmarshal(marker.State, state); err != nil {
			return fmt.Errorf("tablet %d: decode the state of a snapshot: %w", id, err)
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

// clear deletes the cursor's entries, in batches.
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

// fill copies the staged entries into the range.
func (i *Installer) fill(staged *store.Cursor) error {
	for {
		entries, err := staged.Next(maxPieceEntries, defaultPiece)
		if len(entries) == 0 || err != nil {
			return err
		}
		all := batches{{}}
		for _, e := range entries {
			all.room(store.Cost(e.Key, e.Value)).Put(e.Key, e.Value)
		}
		for _, b := range all {
			if err := i.write("fill", b); err != nil {
				return err
			}
		}
	}
}

// Recover completes installations that a crash interrupted, and deletes staged entries that belong
// to none. It must be called before any replica is opened. After a failed Install, Finish suffices.
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
		return fmt.Errorf("snapshot: decode the marker of an installation: %w", err)
	}
	return i.finish(marker)
}

// Finish completes the installation of one tablet if its marker is in the store. It is needed after an
// installation that failed for lack of space, and after a split into a tablet whose replica here
// had been removed before, to clear its rows. The tablet must not be open.
func (i *Installer) Finish(tablet uint64) error {
	snap := i.store.Snap()
	record, ok, err := snap.Installing(tablet)
	snap.Close()
	if !ok || err != nil {
		return err
	}
	return i.recoverRange(record)
}

// ErrUnfinished reports that an unfinished installation needs the staged entries. Finish, or the
// next start, completes it.
var ErrUnfinished = errors.New("snapshot: an installation is not finished")

// Unstage deletes the staged entries of a tablet. It returns ErrUnfinished if an installation still
// needs them.
func (i *Installer) Unstage(tablet uint64) error {
	snap := i.store.Snap()
	defer snap.Close()
	if _, marked, err := snap.Installing(tablet); marked || err != nil {
		return errors.Join(ErrUnfinished, err)
	}
	return i.clear("unstage", snap.Staged(tablet))
}
