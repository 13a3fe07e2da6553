package snapshot

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/group"
	"github.com/percolator-go/percolator/actors/tablet/writers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/store/raftlog"
)

// site is a store with its writers, without tablets.
type site struct {
	t         *testing.T
	dir       string
	store     *store.Store
	system    *actor.ActorSystem
	logs      *writers.Pair
	installer *Installer
	free      uint64 // the store's watermark; 0: a low one
}

func newSite(t *testing.T, dir string) *site {
	t.Helper()
	s := &site{t: t, dir: dir}
	s.open()
	t.Cleanup(s.close)
	return s
}

func (s *site) open() {
	s.t.Helper()
	var err error
	s.store, err = store.Open(store.Options{
		Dir: s.dir, InMemory: s.dir == "", MinFreeBytes: max(s.free, 1<<20), MemTableSize: 16 << 20,
		ReclaimInterval: -1,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.system = actorkit.NewSystem(slog.New(slog.DiscardHandler))
	s.logs = writers.Spawn(s.system, s.store, actorkit.BatchConfig{}, slog.New(slog.DiscardHandler))
	s.installer = NewInstaller(s.store, s.logs)
}

func (s *site) close() {
	if err := s.logs.Stop(); err != nil {
		s.t.Error(err)
	}
	if err := s.store.Close(); err != nil {
		s.t.Error(err)
	}
	s.system.Shutdown()
}

// cutAt makes the installer fail at a step after the step has run skip times.
func (s *site) cutAt(step string, skip int, err error) {
	s.installer.cut = func(at string) error {
		if at != step {
			return nil
		}
		if skip--; skip < 0 {
			return err
		}
		return nil
	}
}

// reopen has the effect of a crash and a restart on committed data.
func (s *site) reopen() {
	s.t.Helper()
	s.close()
	s.open()
}

func (s *site) commit(fill func(b *store.Batch)) {
	s.t.Helper()
	b := &store.Batch{}
	fill(b)
	if err := s.logs.Commit(b); err != nil {
		s.t.Fatal(err)
	}
}

// contents returns all entries of the rows.
func (s *site) contents(d *pb.TabletDescriptor) (out []string) {
	s.t.Helper()
	snap := s.store.SnapWithLocks()
	defer snap.Close()
	err := snap.Cursor(Rows(d)).Each(func(key, value []byte) bool {
		out = append(out, fmt.Sprintf("%q=%q", key, value[:min(len(value), 16)]))
		return true
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

const (
	sentTablet  = 7
	sentReplica = 2
	hereNode    = 20
)

func sentDescriptor() *pb.TabletDescriptor {
	return &pb.TabletDescriptor{
		TabletId: sentTablet, Epoch: 4, StartTable: 16, StartRow: []byte("b"), EndTable: 17,
		EndRow: []byte("n"),
		Replicas: []*pb.Replica{
			{ReplicaId: 1, NodeId: 10}, {ReplicaId: sentReplica, NodeId: hereNode, Learner: true},
		}, NextReplicaId: 3,
	}
}

// groupEntry returns an entry of the group with an arbitrary value: snapshots do not decode it.
func groupEntry(g mvcc.Group, table mvcc.TableID, row, value string) store.Entry {
	c := mvcc.Cell{Table: table, Row: row, Column: "c"}
	return store.Entry{Key: store.AppendKey(nil, g, c, 9), Value: []byte(value)}
}

var allGroups = []mvcc.Group{
	mvcc.GroupWrite, mvcc.GroupHistory, mvcc.GroupData, mvcc.GroupLock, mvcc.GroupRollback,
	mvcc.GroupNotify, mvcc.GroupIntent, mvcc.GroupRaw, mvcc.GroupLocked,
}

// newSource returns a store with a leader's replica: entries of every group in its range, and some
// outside.
func newSource(t *testing.T, d *pb.TabletDescriptor) *site {
	s := newSite(t, "")
	s.fill(d)
	return s
}

// fill puts a leader's replica into the site's store.
func (s *site) fill(d *pb.TabletDescriptor) {
	t := s.t
	t.Helper()
	conf, err := proto.Marshal(&raftpb.ConfState{
		Voters: []uint64{1}, Learners: []uint64{sentReplica},
	})
	if err != nil {
		t.Fatal(err)
	}
	state, err := proto.Marshal(&wire.TabletState{
		Tablet: d, Bound: 5, Safepoint: 4, Catalogue: &pb.Catalogue{Version: 3}, ReplicaId: 1,
		ConfState: conf,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.commit(func(b *store.Batch) {
		b.PutTabletState(sentTablet, state)
		b.PutApplied(sentTablet, store.Applied{Index: 40, Term: 6, Epoch: d.Epoch, Bytes: 4711})
		b.InitialLog(sentTablet, 40, 6)
		for _, g := range allGroups {
			for _, row := range []string{"a", "b", "m", "n", "z"} {
				for table := mvcc.TableID(16); table < 18; table++ {
					e := groupEntry(g, table, row, fmt.Sprintf("%c.%d.%s", g, table, row))
					b.Put(e.Key, e.Value)
				}
			}
		}
		long := groupEntry(mvcc.GroupData, 16, "long", string(bytes.Repeat([]byte("x"), 2<<20)))
		b.Put(long.Key, long.Value)
	})
}

// sendTo sends a snapshot in pieces of n bytes and returns the result.
func (s *site) sendTo(ask Ask, bytes int) error {
	sender := NewSender(s.store, ask, 0, 0)
	defer sender.Close()
	sender.pieceBytes = bytes
	end := make(chan error, 1)
	m := &raftpb.Message{
		Type: raftpb.MsgSnap.Enum(), From: proto.Uint64(1), To: proto.Uint64(sentReplica),
		Term: proto.Uint64(6),
		Snapshot: &raftpb.Snapshot{
			Metadata: &raftpb.SnapshotMetadata{Index: proto.Uint64(38), Term: proto.Uint64(6)},
		},
	}
	what := group.Snapshot{To: sentReplica, Node: hereNode, Message: m, Index: 38}
	if !sender.Send(sentTablet, what, func(err error) { end <- err }) {
		s.t.Fatal("not taken on")
	}
	return <-end
}

// pieces returns the pieces of a snapshot.
func (s *site) pieces(bytes int) (out []*wire.SnapshotChunk) {
	s.t.Helper()
	err := s.sendTo(func(_ uint64, _ time.Time, c *wire.SnapshotChunk,
		then func(*wire.SnapshotAnswer, error)) {
		out = append(out, proto.CloneOf(c))
		then(&wire.SnapshotAnswer{Next: c.Sequence + 1, Installed: c.Last}, nil)
	}, bytes)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// arrive stages the pieces.
func (s *site) arrive(pieces []*wire.SnapshotChunk) (*Arrival, error) {
	a, err := s.installer.Arrive(hereNode, pieces[0])
	if err != nil {
		return nil, err
	}
	for _, p := range pieces {
		done := make(chan error, 1)
		if err := a.Take(p, func(err error) { done <- err }); err != nil {
			return nil, err
		}
		if err := <-done; err != nil {
			return nil, err
		}
	}
	return a, nil
}

// old makes this store's replica a lagging one: it has voted, and holds deleted rows and rows that
// a split has taken from the tablet since.
func (s *site) old() *pb.TabletDescriptor {
	d := sentDescriptor()
	d.Epoch, d.EndRow = 3, []byte("zz")
	state, err := proto.Marshal(&wire.TabletState{
		Tablet: d, Catalogue: &pb.Catalogue{}, ReplicaId: sentReplica,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.commit(func(b *store.Batch) {
		b.PutTabletState(sentTablet, state)
		b.PutApplied(sentTablet, store.Applied{
			Index: store.InitialIndex, Term: store.InitialTerm, Epoch: 3,
		})
		b.InitialLog(sentTablet, store.InitialIndex, store.InitialTerm)
		for _, g := range allGroups {
			for _, row := range []string{"bold", "m", "x", "zzz"} {
				e := groupEntry(g, 17, row, "old")
				b.Put(e.Key, e.Value)
			}
		}
	})
	var entries []*raftpb.Entry
	for i := uint64(store.InitialIndex + 1); i < 30; i++ {
		entries = append(entries, &raftpb.Entry{
			Index: proto.Uint64(i), Term: proto.Uint64(5), Data: []byte("e"),
		})
	}
	log := &raftlog.Batch{}
	log.Append(sentTablet, entries,
		&raftpb.HardState{Term: proto.Uint64(9), Vote: proto.Uint64(1), Commit: proto.Uint64(12)})
	if err := s.store.Append(log); err != nil {
		s.t.Fatal(err)
	}
	s.commit(func(b *store.Batch) {
		b.PutApplied(sentTablet, store.Applied{Index: 12, Term: 5, Epoch: 3})
	})
	return d
}

// checkInstalled compares the replica with the snapshot's source.
func (s *site) checkInstalled(want []string) {
	s.t.Helper()
	whole := &pb.TabletDescriptor{EndUnbounded: true}
	inside := s.contents(sentDescriptor())
	if !slices.Equal(inside, want) {
		s.t.Fatalf("%d entries in the range, want %d", len(inside), len(want))
	}
	for _, e := range s.contents(whole) {
		if !slices.Contains(want, e) && !strings.Contains(e, "zzz") {
			s.t.Fatalf("left outside of the range: %s", e)
		}
	}
	c, err := Capture(s.store.SnapWithLocks(), sentTablet)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Snap.Close()
	if c.Applied != (store.Applied{Index: 40, Term: 6, Epoch: 4, Bytes: 4711}) ||
		c.State.ReplicaId != sentReplica || c.State.Bound != 5 ||
		c.State.Catalogue.GetVersion() != 3 ||
		!slices.Equal(c.Conf.Learners, []uint64{sentReplica}) {
		s.t.Fatalf("installed %v at %v", c.State, c.Applied)
	}
	if _, ok, _ := c.Snap.Installing(sentTablet); ok {
		s.t.Fatal("the marker is still there")
	}
	if ids, err := c.Snap.StagedTablets(); len(ids) > 0 || err != nil {
		s.t.Fatalf("staged entries of %v are left: %v", ids, err)
	}
	log, err := s.store.OpenLog(sentTablet)
	if err != nil {
		s.t.Fatal(err)
	}
	first, _ := log.FirstIndex()
	last, _ := log.LastIndex()
	hs, _, _ := log.InitialState()
	if first != 41 || last != 40 || hs.GetCommit() != 40 || hs.GetTerm() != 9 || hs.GetVote() != 1 {
		s.t.Fatalf("log (%d, %d] with %v", first-1, last, hs)
	}
}
