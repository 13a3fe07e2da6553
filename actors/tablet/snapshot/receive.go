package snapshot

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/group"
	"github.com/percolator-go/percolator/actors/tablet/writers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// Receipt of a snapshot: the pieces are checked in order and staged through the state
// actor, and have no effect until they are installed. The caller ensures that one goroutine
// at a time uses an Arrival. When Take returns, the piece may not be staged yet; the function
// passed to Take is called when it is.

// Reasons to refuse a snapshot. The sender receives the text.
var (
	// ErrDamaged reports that a checksum does not match, or something is unreadable.
	ErrDamaged = errors.New("snapshot: damaged")
	// ErrOrder reports that the piece is not the expected one.
	ErrOrder = errors.New("snapshot: piece out of order")
	// ErrForeign reports that the snapshot is for a replica that is not on this node.
	ErrForeign = errors.New("snapshot: not for this replica")
	// ErrTooEarly reports that the snapshot's configuration does not contain the replica yet. The
	// next one will.
	ErrTooEarly = errors.New("snapshot: from before the replica was added")
)

// Arrival is a snapshot whose pieces are arriving. They are checked and staged, and have no
// effect until Install.
type Arrival struct {
	installer *Installer
	writes    writers.Stream
	id        string
	marker    *wire.Installing
	next      uint64 // number of the expected piece
	filled    *store.Filling
	total     Sum
	bytes     uint64 // bytes staged
	whole     bool   // all pieces were accepted
}

// Arrive checks the header in a snapshot's first piece, for the tablet's replica on the
// node. An error is permanent for this snapshot. Before the first Take the tablet must have nothing
// staged.
func (i *Installer) Arrive(node uint64, first *wire.SnapshotChunk) (*Arrival, error) {
	marker, err := readHeader(node, first)
	if err != nil {
		return nil, err
	}
	return &Arrival{
		installer: i, id: first.Id, marker: marker, filled: store.NewFilling(Rows(marker.Tablet)),
	}, nil
}

// readHeader returns the marker that the store keeps while the snapshot is installed,
// made from the header in its first piece.
func readHeader(node uint64, first *wire.SnapshotChunk) (*wire.Installing, error) {
	h, message, state := first.GetHeader(), &raftpb.Message{}, &wire.TabletState{}
	if h == nil || first.Sequence != 0 {
		return nil, fmt.Errorf("%w: the first piece has number %d, header %t; want number 0 with a header", ErrOrder,
			first.Sequence, h != nil)
	}
	if err := errors.Join(proto.Unmarshal(h.Message, message),
		proto.Unmarshal(h.State, state)); err != nil {
		return nil, fmt.Errorf("%w: decode the header: %w", ErrDamaged, err)
	}
	conf, err := confOf(state)
	if err != nil {
		return nil, fmt.Errorf("%w: decode the configuration in the header: %w", ErrDamaged, err)
	}
	to := group.Replica(state.Tablet, first.ToReplica)
	place := message.GetSnapshot().GetMetadata()
	switch {
	case state.GetTablet().GetTabletId() != first.TabletId || first.TabletId == 0 ||
		wire.EmptyRange(state.Tablet):
		return nil, fmt.Errorf("%w: its state is of tablet %d, its piece of tablet %d: they differ, "+
			"or the range is empty", ErrForeign, state.GetTablet().GetTabletId(), first.TabletId)
	case place.GetIndex() != h.Index || place.GetTerm() != h.Term || h.Index == 0 ||
		message.GetTo() != first.ToReplica:
		return nil, fmt.Errorf("%w: its header and its Raft message name different entries or replicas",
			ErrDamaged)
	case to.GetNodeId() != node:
		return nil, fmt.Errorf("%w: replica %d is on node %d", ErrForeign,
			first.ToReplica, to.GetNodeId())
	case !inConf(conf, first.ToReplica):
		return nil, ErrTooEarly
	}
	// The state was the sender's: here it becomes that of the receiving replica.
	state.ReplicaId = first.ToReplica
	own, err := proto.Marshal(state)
	if err != nil {
		return nil, fmt.Errorf("%w: encode the state of the new replica: %w", ErrDamaged, err)
	}
	return &wire.Installing{
		TabletId: first.TabletId, ReplicaId: first.ToReplica, Tablet: state.Tablet, State: own,
		Index: h.Index, Term: h.Term,
	}, nil
}

// Descriptor returns the tablet's descriptor as of the snapshot.
func (a *Arrival) Descriptor() *pb.TabletDescriptor { return a.marker.Tablet }

// Replica returns the id of the replica that the snapshot is for.
func (a *Arrival) Replica() uint64 { return a.marker.ReplicaId }

// Next returns the number of the expected piece.
func (a *Arrival) Next() uint64 { return a.next }

// Needed reports whether the replica lacks entries of the snapshot. One that has its last
// entry does not: its leader has not learned of it yet.
func (a *Arrival) Needed() (bool, error) {
	id, st := a.marker.TabletId, a.installer.store
	snap := st.Snap()
	applied, ok, err := snap.Applied(id)
	snap.Close()
	switch {
	case err != nil:
		return false, err
	case !ok:
		return false, ErrForeign
	case applied.Index >= a.marker.Index:
		return false, nil
	}
	// The replica lacks entries, unless its log contains them and they are only not applied yet.
	log, err := st.OpenLog(id)
	if err != nil {
		return false, err
	}
	term, err := log.Term(a.marker.Index)
	return err != nil || term != a.marker.Term, nil
}

// Fits returns store.ErrDiskFull, wrapped, if the store has no space to install the staged entries,
// which are copied.
func (a *Arrival) Fits() error { return a.installer.store.Room(a.bytes) }

// Take checks a piece and stages it. The callback then is called once the piece is staged, or with
// the error, on the state actor's goroutine, and must not block. If Take itself fails, then is not
// called. After an error, of Take or given to then, the snapshot is lost and must be unstaged. A
// piece is refused if the store would fall below its watermark of free space. A piece that was
// taken before is an error too: a caller that may get messages twice filters them by Next.
func (a *Arrival) Take(c *wire.SnapshotChunk, then func(error)) error {
	switch {
	case a.whole || c.Sequence != a.next || c.Id != a.id || c.ToReplica != a.marker.ReplicaId:
		return fmt.Errorf("%w: got piece %d of %q, want piece %d of %q", ErrOrder, c.Sequence,
			c.Id, a.next, a.id)
	case sumOf(c.Entries) != c.Checksum:
		return fmt.Errorf("%w: the checksum of piece %d does not match", ErrDamaged, c.Sequence)
	}
	piece := uint64(proto.Size(c))
	a.total.addPiece(c.Checksum)
	if c.Last && a.total.Sum64() != c.Total {
		return fmt.Errorf("%w: the checksum of all pieces does not match", ErrDamaged)
	}
	if err := a.installer.store.Room(piece); err != nil {
		return fmt.Errorf("tablet %d: stage a snapshot: %w", a.marker.TabletId, err)
	}
	batches, err := a.stage(c.Entries)
	if err != nil {
		return err
	}
	a.bytes += piece
	a.next++
	a.whole = c.Last
	for _, b := range batches[:len(batches)-1] {
		// An error of this batch stops the stream, so the last batch reports it.
		a.send(b, func(error) {})
	}
	a.send(batches[len(batches)-1], then)
	return nil
}

// send passes a batch to the state actor, which drops it if an earlier one was refused.
func (a *Arrival) send(b *store.Batch, done func(error)) {
	a.installer.writers.Send(&writers.Write{Batch: b, Stream: &a.writes, Done: done})
}

// stage puts the entries into as many batches as the store's limits require. They need no
// sync of their own: the marker, which is synced, comes after them.
func (a *Arrival) stage(entries []*wire.Effect) ([]*store.Batch, error) {
	all := batches{{}}
	for _, e := range entries {
		entry := store.Entry{Key: e.Key, Value: e.Value}
		err := a.filled.Check(entry)
		if err == nil && e.Delete {
			err = ErrDamaged
		}
		if err != nil {
			return nil, fmt.Errorf("%w: check a record: %w", ErrDamaged, err)
		}
		all.room(store.StageCost(entry)).Stage(a.marker.TabletId, entry)
	}
	return all, nil
}

// batches splits entries into batches within the store's limits. There is always at least
// one.
type batches []*store.Batch

// room returns a batch with room for size more bytes and the given number of entries. An entry too
// large for any batch gets one of its own, which the store refuses.
func (b *batches) room(size, entries int) *store.Batch {
	last := (*b)[len(*b)-1]
	if last.Len() > 0 && (last.Size()+size > store.MaxBatchBytes ||
		last.Len()+entries > store.MaxBatchLen) {
		last = &store.Batch{}
		*b = append(*b, last)
	}
	return last
}
