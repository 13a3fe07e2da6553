package tablet

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
//  2. the range is cleared, and the staged entries copied into the range, in as many batches as it takes;
//  3. one batch brings the state, the Applied record and the log's new place into force, and takes the marker away;
//  4. the staged entries are deleted.
//
// A crash before 1 leaves the replica as it was; one after it finds the marker at the
// next start, before any replica is opened, and begins again with 2. So a replica never
// goes back behind what it has acknowledged to its leader: Raft takes the loss of
// acknowledged entries for a broken log, and a leader that knows of them would not send
// them again. What was voted stays: HardState is not touched.
//
// Removing a replica is the same without a snapshot: 1 takes its state away and leaves a
// tombstone beside the marker, 2 clears, 3 takes the marker away.

// installer carries out the steps, on the goroutine of whoever calls it; its writes go
// through the state actor. Tests cut the steps short.
type installer struct {
	store *store.Store
	logs  *writers.Pair
	cut   func(step string) error // called before each write; nil: goes on
}

// Install brings the staged snapshot of an Arrival into force; before is the replica's
// descriptor so far, whose range must hold the snapshot's. It waits for the disk. After
// an error the replica must not be opened before Recover has succeeded.
func (a *Arrival) Install(before *pb.TabletDescriptor) error {
	return a.install(&installer{store: a.store, logs: a.logs}, before)
}

func (a *Arrival) install(i *installer, before *pb.TabletDescriptor) error {
	if !a.whole {
		return fmt.Errorf("%w: it is not whole", ErrSnapshotOrder)
	}
	marker := proto.CloneOf(a.marker)
	if before != nil && !EmptyRange(before) {
		marker.Tablet = before // what a split has taken from it since goes too
	}
	b := &store.Batch{}
	if err := putInstalling(b, marker); err != nil {
		return err
	}
	if err := i.write("marker", b); err != nil {
		return err
	}
	return i.finish(marker)
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
func (i *installer) write(step string, b *store.Batch) error {
	if i.cut != nil {
		if err := i.cut(step); err != nil {
			return err
		}
	}
	return i.logs.Commit(b)
}

// finish does what a marker asks for, from the beginning: each step may have been done
// already, in part or as a whole.
func (i *installer) finish(marker *wire.Installing) error {
	id := marker.TabletId
	snap := i.store.Snap()
	defer snap.Close()
	if err := i.clear("clear", snap.Cursor(rowsOf(marker.Tablet))); err != nil {
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
func (i *installer) clear(step string, c *store.Cursor) error {
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
func (i *installer) fill(staged *store.Cursor) error {
	for {
		entries, err := staged.Next(maxPieceEntries, DefaultSnapshotPiece)
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
func Recover(st *store.Store, logs *writers.Pair) error {
	return (&installer{store: st, logs: logs}).recoverAll()
}

func (i *installer) recoverAll() error {
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

func (i *installer) recoverRange(record []byte) error {
	marker := &wire.Installing{}
	if err := proto.Unmarshal(record, marker); err != nil {
		return fmt.Errorf("tablet: marker of an installation: %w", err)
	}
	return i.finish(marker)
}

// FinishInstalling does for one tablet what Recover does for all; without a marker it
// does nothing. It is needed where an installation failed for want of space, and after a
// split that made a tablet whose replica here had been removed before: its rows are
// cleared under a marker. The tablet must not be open.
func FinishInstalling(st *store.Store, logs *writers.Pair, tablet uint64) error {
	return (&installer{store: st, logs: logs}).finishOne(tablet)
}

func (i *installer) finishOne(tablet uint64) error {
	snap := i.store.Snap()
	record, ok, err := snap.Installing(tablet)
	snap.Close()
	if !ok || err != nil {
		return err
	}
	return i.recoverRange(record)
}

// ErrUnfinished means that an installation has begun and needs what is staged to be
// completed. FinishInstalling does that, or the next start.
var ErrUnfinished = errors.New("tablet: an installation is not finished")

// Unstage drops what is staged for a tablet. It returns ErrUnfinished if an installation
// still needs it.
func Unstage(st *store.Store, logs *writers.Pair, tablet uint64) error {
	snap := st.Snap()
	defer snap.Close()
	if _, marked, err := snap.Installing(tablet); marked || err != nil {
		return errors.Join(ErrUnfinished, err)
	}
	return (&installer{store: st, logs: logs}).clear("unstage", snap.Staged(tablet))
}
