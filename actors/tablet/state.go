package tablet

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// MetaTabletID is the tablet that holds the cluster's own tables and the oracle's mark.
const MetaTabletID = 1

// replicaID is this replica's id in its Raft group; on one node every group has the one voter.
const replicaID = 1

var (
	errLost    = errors.New("another leader was elected")
	errNoState = errors.New("the store holds no state of this tablet")
)

// state is the tablet's replicated figures (design section 3, last row of the table).
type state struct {
	descriptor       *pb.TabletDescriptor
	sibling          *pb.TabletDescriptor // the right side of the last split here: heals maps; not replicated
	appliedCatalogue *catalogue
	catalogue        *catalogue     // the newest that is proposed: what evaluation honours
	bound, safepoint mvcc.Timestamp // the greatest that are proposed: what evaluation honours
	appliedBound     mvcc.Timestamp
	appliedSafepoint mvcc.Timestamp
	mark             uint64 // the oracle's, in the meta tablet
	index, entryTerm uint64 // of the last entry handed on to be applied
	stateChanged     bool   // the next apply writes the state as a whole
	matched          int    // proposals in flight that are handed on to be applied
	tokens           uint64
}

func (s *state) put(b *store.Batch, id uint64) {
	m := &wire.TabletState{
		Tablet: s.descriptor, Bound: uint64(s.appliedBound), Safepoint: uint64(s.appliedSafepoint),
		Catalogue: s.appliedCatalogue.message, OracleMark: s.mark,
	}
	data, err := proto.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("tablet: own state cannot be marshalled: %v", err)) // a broken invariant: all fields are ours
	}
	b.PutTabletState(id, data)
}

func (t *Tablet) putState(b *store.Batch) { t.state.put(b, t.id) }

// Bootstrap adds the state of a new cluster's tablet with one voter to the batch.
func Bootstrap(b *store.Batch, d *pb.TabletDescriptor) {
	s := state{descriptor: d, appliedCatalogue: newCatalogue(&pb.Catalogue{})}
	s.put(b, d.TabletId)
	b.PutApplied(d.TabletId, store.Applied{Index: store.InitialIndex, Term: store.InitialTerm, Epoch: d.Epoch})
	store.InitialLog(b, d.TabletId, store.InitialIndex, store.InitialTerm)
}

// open reads the replica's state and makes its RawNode.
func (t *Tablet) open() error {
	if err := t.load(); err != nil {
		return err
	}
	log, err := t.store.OpenLog(t.id)
	if err != nil {
		return err
	}
	log.SetConfState(&raftpb.ConfState{Voters: []uint64{replicaID}})
	log.SetSnapshot(t.snapshotMetadata)
	t.log = log
	first, err := log.FirstIndex()
	if err != nil {
		return err
	}
	t.truncated = first - 1
	t.node, err = raft.NewRawNode(&raft.Config{
		ID: replicaID, ElectionTick: 10, HeartbeatTick: 2, Storage: log, Applied: t.index,
		AsyncStorageWrites: true, PreVote: true, CheckQuorum: true, DisableProposalForwarding: true,
		MaxSizePerMsg: 1 << 20, MaxCommittedSizePerReady: maxProposalBytes, MaxInflightMsgs: 256,
		MaxUncommittedEntriesSize: 256 << 20,
		Logger:                    raftLogger{t.cfg.Logger.With("tablet", t.id)},
	})
	return err
}

func (t *Tablet) load() error {
	snap := t.store.Snap()
	defer snap.Close()
	data, ok, err := snap.TabletState(t.id)
	if err != nil {
		return err
	}
	a, okApplied, err := snap.Applied(t.id)
	if err != nil {
		return err
	}
	if !ok || !okApplied {
		return errNoState
	}
	m := &wire.TabletState{}
	if err := proto.Unmarshal(data, m); err != nil {
		return fmt.Errorf("stored state cannot be read: %w", err)
	}
	catalogue := newCatalogue(m.Catalogue)
	t.state = state{
		descriptor: m.Tablet, appliedCatalogue: catalogue, catalogue: catalogue,
		bound: mvcc.Timestamp(m.Bound), safepoint: mvcc.Timestamp(m.Safepoint), mark: m.OracleMark,
		appliedBound: mvcc.Timestamp(m.Bound), appliedSafepoint: mvcc.Timestamp(m.Safepoint),
		index: a.Index, entryTerm: a.Term,
	}
	t.visible = a.Index
	t.seenSafepoint.Store(m.Safepoint)
	return nil
}
