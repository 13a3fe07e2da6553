package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/group"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// Code shared by sender and receiver: the state of a snapshot, and its checksums. All of it
// may be called on any goroutine.

// maxPieceEntries limits the entries of a piece, in addition to its bytes.
const maxPieceEntries = 4096

var (
	// errReplaced reports that the replica's range is being filled or cleared: its rows may be a
	// mix of old and new.
	errReplaced = errors.New("snapshot: the replica is being replaced")
	errNoState  = errors.New("snapshot: the store contains no state of this tablet")
)

// Rows returns the tablet's stored range.
func Rows(d *pb.TabletDescriptor) store.Rows {
	start := wire.StartOf(d)
	end, bounded := wire.EndOf(d)
	return store.Rows{
		Table: start.Table, Row: start.Row, EndTable: end.Table, EndRow: end.Row, Bounded: bounded,
	}
}

// Captured is a replica's state as of one entry. Its rows can be read through Snap, with their
// locks if it is a SnapWithLocks, until the caller of Capture closes it.
type Captured struct {
	Snap    *store.Snap
	State   *wire.TabletState
	Conf    *raftpb.ConfState // of State
	Applied store.Applied
}

// Capture reads the state of a tablet from a Snap, and closes the Snap if that fails. State and
// Applied record are committed with the effects, so they agree with the rows unless a marker
// exists: by the time a leader's snapshot is sent, its replica may itself be being replaced.
func Capture(snap *store.Snap, id uint64) (_ *Captured, err error) {
	c := &Captured{Snap: snap, State: &wire.TabletState{}}
	defer func() {
		if err != nil {
			c.Snap.Close()
		}
	}()
	if _, marked, err := c.Snap.Installing(id); err != nil {
		return nil, err
	} else if marked {
		return nil, errReplaced
	}
	data, ok, err := c.Snap.TabletState(id)
	if err != nil {
		return nil, err
	}
	applied, okApplied, err := c.Snap.Applied(id)
	switch {
	case err != nil:
		return nil, err
	case !ok || !okApplied:
		return nil, errNoState
	}
	if err := proto.Unmarshal(data, c.State); err != nil {
		return nil, fmt.Errorf("decode the stored state: %w", err)
	}
	c.Applied = applied
	c.Conf, err = confOf(c.State)
	return c, err
}

// confOf returns the group's configuration from a stored state. A state with neither a replica id
// nor a configuration is from a build before replication. One without a replica id belongs to
// replica 1: confOf sets it.
func confOf(m *wire.TabletState) (*raftpb.ConfState, error) {
	conf := &raftpb.ConfState{}
	if m.ReplicaId == 0 && len(m.ConfState) == 0 {
		conf.Voters = []uint64{group.FirstReplica}
	} else if err := proto.Unmarshal(m.ConfState, conf); err != nil {
		return nil, fmt.Errorf("decode the stored configuration: %w", err)
	}
	m.ReplicaId = max(m.ReplicaId, group.FirstReplica)
	return conf, nil
}

// inConf reports whether the replica belongs to the configuration.
func inConf(conf *raftpb.ConfState, replica uint64) bool {
	ids := slices.Concat(conf.Voters, conf.Learners, conf.VotersOutgoing, conf.LearnersNext)
	return slices.Contains(ids, replica)
}

// Place returns the captured state's position in the log, in the form that raft expects.
func (c *Captured) Place() *raftpb.Snapshot {
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: &c.Applied.Index, Term: &c.Applied.Term, ConfState: c.Conf,
	}}
}

// Sum is a checksum over entries. It covers their lengths, so that different entries are never the
// same byte sequence. The zero value is the checksum of no entries.
type Sum struct {
	xxh3.Hasher
	prefix [2 * binary.MaxVarintLen64]byte
}

// Add adds an entry.
func (s *Sum) Add(key, value []byte) {
	b := binary.AppendUvarint(s.prefix[:0], uint64(len(key)))
	b = binary.AppendUvarint(b, uint64(len(value)))
	_, _ = s.Write(b) // a hash never fails
	_, _ = s.Write(key)
	_, _ = s.Write(value)
}

// sumOf returns the checksum of one piece.
func sumOf(entries []*wire.Effect) uint64 {
	var s Sum
	for _, e := range entries {
		s.Add(e.Key, e.Value)
	}
	return s.Sum64()
}

// addPiece adds a piece's checksum to that of the whole snapshot.
func (s *Sum) addPiece(checksum uint64) {
	_, _ = s.Write(binary.BigEndian.AppendUint64(s.prefix[:0], checksum))
}
