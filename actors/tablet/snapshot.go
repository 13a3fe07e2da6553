package tablet

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/zeebo/xxh3"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/group"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// A snapshot is a tablet's state as of one entry of its log: the TabletState and all
// groups' entries of its range, read from one Snap of the store, whose Applied record
// says which entry that is. It travels in pieces beside Raft (snapshotsend.go), and is
// staged as a whole where it arrives (snapshotreceive.go) before anything there changes
// (snapshotinstall.go). This file has what both ends share, and the tablet's part, in its
// turns: raft asks for the metadata, and the sender's workers do the rest and report with
// a snapshotSent.

// Reasons to refuse a snapshot. The sender is told the text.
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

// errReplaced means that the replica's range is being filled or cleared: its state is
// still the old one, its rows belong to neither.
var errReplaced = errors.New("tablet: the replica is being replaced")

// maxPieceEntries limits the entries of a piece, beside its bytes.
const maxPieceEntries = 4096

// rowsOf returns the tablet's range as the store has it.
func rowsOf(d *pb.TabletDescriptor) store.Rows {
	start := wire.StartOf(d)
	end, bounded := wire.EndOf(d)
	return store.Rows{
		Table: start.Table, Row: start.Row, EndTable: end.Table, EndRow: end.Row, Bounded: bounded,
	}
}

// EmptyRange reports whether the tablet's range holds no rows, as that of a replica that
// waits for its first snapshot.
func EmptyRange(d *pb.TabletDescriptor) bool {
	end, bounded := wire.EndOf(d)
	return bounded && !wire.StartOf(d).Less(end)
}

// Overlap reports whether the ranges of both tablets have a row in common.
func Overlap(a, b *pb.TabletDescriptor) bool {
	if EmptyRange(a) || EmptyRange(b) {
		return false
	}
	endA, boundedA := wire.EndOf(a)
	endB, boundedB := wire.EndOf(b)
	return (!boundedA || wire.StartOf(b).Less(endA)) && (!boundedB || wire.StartOf(a).Less(endB))
}

// captured is a snapshot that can be read until its Snap is closed. Whoever captures it
// closes it.
type captured struct {
	snap    *store.Snap
	state   *wire.TabletState
	conf    *raftpb.ConfState
	applied store.Applied
}

// captureSnapshot opens a Snap and reads which entry it is of. The records are in the Txn
// of the effects, so they agree, unless a marker stands: a sender whose replica led when
// it was asked may get to it when that replica is being replaced itself. It may be called
// on any goroutine.
func captureSnapshot(st *store.Store, id uint64) (_ *captured, err error) {
	c := &captured{snap: st.Snap()}
	defer func() {
		if err != nil {
			c.snap.Close()
		}
	}()
	if _, marked, err := c.snap.Installing(id); marked || err != nil {
		return nil, errors.Join(errReplaced, err)
	}
	if c.state, c.applied, err = loadState(c.snap, id); err != nil {
		return nil, err
	}
	_, c.conf, err = identity(c.state)
	return c, err
}

// inConf reports whether the replica belongs to the configuration.
func inConf(conf *raftpb.ConfState, replica uint64) bool {
	for _, ids := range [][]uint64{conf.Voters, conf.Learners, conf.VotersOutgoing,
		conf.LearnersNext} {
		if slices.Contains(ids, replica) {
			return true
		}
	}
	return false
}

// message returns the MsgSnap with the captured snapshot's own place in the log.
func (c *captured) message(m *raftpb.Message) *raftpb.Message {
	out := proto.CloneOf(m)
	out.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: &c.applied.Index, Term: &c.applied.Term, ConfState: c.conf,
	}}
	return out
}

// snapshotMetadata returns what raft needs to decide on a snapshot: the place of what is
// visible now. What is sent later may be newer. While entries are replayed after a start
// there is none: the rows may be ahead of the applied index.
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

// sendSnapshot has a snapshot sent by the node's sender; its end comes back as a
// snapshotSent. If too many wait, the group is told at once, and asks again.
func (t *Tablet) sendSnapshot(s group.Snapshot) {
	job := &snapshotJob{
		store: t.store, id: t.id, to: s.To, node: s.Node, message: s.Message, index: s.Index,
		done: func(err error) { t.self.send(&snapshotSent{to: s.To, err: err}) },
	}
	if t.cfg.Snapshots == nil || !t.cfg.Snapshots.send(job) {
		t.group.SnapshotEnded(s.To, false)
	}
}

// snapshotSent reports the end of a snapshot's sending.
type snapshotSent struct {
	to  uint64
	err error
}

// onSnapshotSent tells the group that the sending has ended. It finds out what the
// replica has, whether or not there was an error.
func (t *Tablet) onSnapshotSent(m *snapshotSent) {
	if m.err != nil {
		t.cfg.Logger.Warn("a snapshot was not installed; the replica is asked what it lacks",
			"tablet", t.id, "replica", m.to, "error", m.err)
	}
	t.group.SnapshotEnded(m.to, true)
	t.ready()
}

// sum is a checksum over entries. Their lengths are part of it, so that no other entries
// have the same bytes.
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

// sumOf returns the checksum of one piece.
func sumOf(entries []*wire.Effect) uint64 {
	s := newSum()
	for _, e := range entries {
		s.add(e.Key, e.Value)
	}
	return s.hash.Sum64()
}

// addPiece adds a piece's checksum to that of the whole snapshot.
func (s *sum) addPiece(checksum uint64) {
	_, _ = s.hash.Write(binary.BigEndian.AppendUint64(s.prefix[:0], checksum))
}
