package tablet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/group"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// A snapshot is a tablet's state as of one entry of its log: the TabletState and all
// groups' entries of its range, read from one Snap of the store, whose Applied record
// says which entry that is. It travels in pieces beside Raft, and is staged as a whole
// where it arrives, before anything there changes (snapshotinstall.go).

// What a snapshot may be refused for. The sender is told the text.
var (
	// ErrSnapshotDamaged: a checksum does not fit, or something cannot be read.
	ErrSnapshotDamaged = errors.New("tablet: snapshot is damaged")
	// ErrSnapshotOrder: the piece is not the one that is expected.
	ErrSnapshotOrder = errors.New("tablet: snapshot piece out of order")
	// ErrSnapshotForeign: the snapshot is not one for that replica.
	ErrSnapshotForeign = errors.New("tablet: snapshot is not for this replica")
	// ErrSnapshotTooEarly: it does not know the replica yet. The next one will.
	ErrSnapshotTooEarly = errors.New("tablet: snapshot is from before the replica was added")
)

// errReplaced: the replica's range is being filled or cleared. Its state is still the old
// one's, its rows are neither's.
var errReplaced = errors.New("tablet: the replica is being replaced")

// maxPieceEntries bounds the entries of a piece, beside its bytes.
const maxPieceEntries = 4096

// rowsOf are the rows of the tablet, for the store.
func rowsOf(d *pb.TabletDescriptor) store.Rows {
	start := wire.StartOf(d)
	end, bounded := wire.EndOf(d)
	return store.Rows{
		Table: start.Table, Row: start.Row, EndTable: end.Table, EndRow: end.Row, Bounded: bounded,
	}
}

// EmptyRange reports whether the tablet holds no rows: that of a replica that waits for
// its first snapshot.
func EmptyRange(d *pb.TabletDescriptor) bool {
	end, bounded := wire.EndOf(d)
	return bounded && !wire.StartOf(d).Less(end)
}

// Overlap reports whether both tablets' ranges have a row in common.
func Overlap(a, b *pb.TabletDescriptor) bool {
	if EmptyRange(a) || EmptyRange(b) {
		return false
	}
	endA, boundedA := wire.EndOf(a)
	endB, boundedB := wire.EndOf(b)
	return (!boundedA || wire.StartOf(b).Less(endA)) && (!boundedB || wire.StartOf(a).Less(endB))
}

// captured is a snapshot that can be read, until the Snap is closed.
type captured struct {
	snap    *store.Snap
	state   *wire.TabletState
	conf    *raftpb.ConfState
	applied store.Applied
}

// captureSnapshot opens a Snap and reads which entry it is of. The records are in the Txn
// of the effects, so they fit, unless a marker stands: a sender that was to send this
// while its replica led may come to it when that is being replaced itself.
func captureSnapshot(st *store.Store, id uint64) (_ *captured, err error) {
	c := &captured{snap: st.Snap(), state: &wire.TabletState{}}
	defer func() {
		if err != nil {
			c.snap.Close()
		}
	}()
	if _, marked, err := c.snap.Installing(id); marked || err != nil {
		return nil, errors.Join(errReplaced, err)
	}
	data, ok, err := c.snap.TabletState(id)
	if err != nil {
		return nil, err
	}
	a, okApplied, err := c.snap.Applied(id)
	if err != nil {
		return nil, err
	}
	if !ok || !okApplied {
		return nil, errNoState
	}
	if err := proto.Unmarshal(data, c.state); err != nil {
		return nil, fmt.Errorf("stored state cannot be read: %w", err)
	}
	c.applied = a
	_, c.conf, err = identity(c.state)
	return c, err
}

// inConf reports whether the replica is one of the configuration's.
func inConf(conf *raftpb.ConfState, replica uint64) bool {
	for _, ids := range [][]uint64{conf.Voters, conf.Learners, conf.VotersOutgoing,
		conf.LearnersNext} {
		if slices.Contains(ids, replica) {
			return true
		}
	}
	return false
}

// message is the MsgSnap with the snapshot's own place in the log.
func (c *captured) message(m *raftpb.Message) *raftpb.Message {
	out := proto.CloneOf(m)
	out.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: &c.applied.Index, Term: &c.applied.Term, ConfState: c.conf,
	}}
	return out
}

// snapshotMetadata is what raft needs to decide on a snapshot: one of what is visible
// now. What is sent may be later.
func (t *Tablet) snapshotMetadata() (*raftpb.Snapshot, error) {
	if t.cfg.Snapshots == nil || t.failed != nil || t.group.Visible() < t.group.Replayed() {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	c, err := captureSnapshot(t.store, t.id)
	if err != nil {
		t.fail(err) // raft would panic
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	defer c.snap.Close()
	return c.message(&raftpb.Message{}).Snapshot, nil
}

// sendSnapshot has a snapshot sent; what becomes of it comes back as a snapshotSent.
func (t *Tablet) sendSnapshot(s group.Snapshot) {
	job := &snapshotJob{
		store: t.store, id: t.id, to: s.To, node: s.Node, message: s.Message, index: s.Index,
		done: func(err error) { t.root.Send(t.self, &snapshotSent{to: s.To, err: err}) },
	}
	if t.cfg.Snapshots == nil || !t.cfg.Snapshots.send(job) {
		t.group.SnapshotEnded(s.To, false)
	}
}

// nodeOf is where a replica is; 0: the descriptor does not say.
func nodeOf(d *pb.TabletDescriptor, replica uint64) uint64 {
	for _, r := range d.GetReplicas() {
		if r.ReplicaId == replica {
			return r.NodeId
		}
	}
	return 0
}

// snapshotSent is the end of a snapshot's sending.
type snapshotSent struct {
	to  uint64
	err error
}

// onSnapshotSent tells the group.
func (t *Tablet) onSnapshotSent(m *snapshotSent) {
	if m.err != nil {
		t.cfg.Logger.Warn("a snapshot was not installed; the replica is asked what it lacks",
			"tablet", t.id, "replica", m.to, "error", m.err)
	}
	t.group.SnapshotEnded(m.to, true)
	t.ready()
}

// sum is a checksum over entries: lengths count, so that no other entries have the same bytes.
type sum struct {
	hash   *xxh3.Hasher
	prefix [2 * binary.MaxVarintLen64]byte
}

func newSum() *sum { return &sum{hash: xxh3.New()} }

func (s *sum) add(key, value []byte) {
	b := binary.AppendUvarint(s.prefix[:0], uint64(len(key)))
	b = binary.AppendUvarint(b, uint64(len(value)))
	_, _ = s.hash.Write(b) // a hash takes everything
	_, _ = s.hash.Write(key)
	_, _ = s.hash.Write(value)
}

func sumOf(entries []*wire.Effect) uint64 {
	s := newSum()
	for _, e := range entries {
		s.add(e.Key, e.Value)
	}
	return s.hash.Sum64()
}

// addPiece makes a piece's checksum part of the whole's.
func (s *sum) addPiece(checksum uint64) {
	_, _ = s.hash.Write(binary.BigEndian.AppendUint64(s.prefix[:0], checksum))
}

// firstGroup is the first byte of the keys of a group.
func firstGroup(key []byte) mvcc.Group { return mvcc.Group(key[0]) }
