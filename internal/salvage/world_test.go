package salvage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/store/raftlog"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const table = mvcc.FirstUserTable

// world is the stores of a cluster's stopped nodes.
type world struct {
	t      *testing.T
	stores []*store.Store
	ids    []uint64 // of the nodes
}

func newWorld(t *testing.T, size int) *world {
	t.Helper()
	w := &world{t: t}
	for range size {
		st, err := store.Open(store.Options{InMemory: true, Crashes: true, ReclaimInterval: -1})
		if err != nil {
			t.Fatal(err)
		}
		self, err := join.OpenSelf(st)
		if err == nil {
			err = self.Joined(&pb.JoinResponse{ClusterId: "c"})
		}
		if err != nil {
			t.Fatal(err)
		}
		w.stores, w.ids = append(w.stores, st), append(w.ids, self.Identity().NodeID)
	}
	t.Cleanup(func() {
		for _, st := range w.stores {
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return w
}

// tablet creates a tablet with a voter on each of the nodes, replica i+1 on node i.
func (w *world) tablet(id uint64, start, end string, nodes ...int) *pb.TabletDescriptor {
	w.t.Helper()
	d := &pb.TabletDescriptor{
		TabletId: id, Epoch: 3, StartTable: uint32(table), StartRow: []byte(start),
		EndTable: uint32(table), EndRow: []byte(end), NextReplicaId: uint64(len(w.ids)) + 1,
	}
	if end == "" {
		d.EndTable, d.EndRow, d.EndUnbounded = 0, nil, true
	}
	if id == cluster.MetaTablet {
		d.StartTable, d.StartRow, d.EndTable, d.EndRow, d.EndUnbounded = 0, nil, uint32(table), nil, false
	}
	for _, i := range nodes {
		d.Replicas = append(d.Replicas, &pb.Replica{ReplicaId: uint64(i) + 1, NodeId: w.ids[i]})
	}
	for _, i := range nodes {
		w.bootstrap(i, d)
	}
	return d
}

func (w *world) bootstrap(i int, d *pb.TabletDescriptor) {
	w.t.Helper()
	b := &store.Batch{}
	tablet.Bootstrap(b, d, uint64(i)+1)
	w.commit(i, b)
}

func (w *world) commit(i int, b *store.Batch) {
	w.t.Helper()
	if err := w.stores[i].StateWriter().Commit([]*store.Batch{b}); err != nil {
		w.t.Fatal(err)
	}
}

// log appends one entry of the term for each command to the logs on the nodes, which record the
// earlier entries as committed.
func (w *world) log(id, term uint64, commands []*wire.Command, nodes ...int) {
	w.t.Helper()
	for _, i := range nodes {
		log, err := w.stores[i].OpenLog(id)
		if err != nil {
			w.t.Fatal(err)
		}
		last, err := log.LastIndex()
		if err != nil {
			w.t.Fatal(err)
		}
		var entries []*raftpb.Entry
		for n, c := range commands {
			data, err := proto.Marshal(c)
			if err != nil {
				w.t.Fatal(err)
			}
			e := &raftpb.Entry{Term: &term, Index: proto.Uint64(last + 1 + uint64(n)), Data: data}
			if c.Replicas != nil {
				e.Type = raftpb.EntryConfChangeV2.Enum()
				if e.Data, err = proto.Marshal(&raftpb.ConfChangeV2{Context: data}); err != nil {
					w.t.Fatal(err)
				}
			}
			entries = append(entries, e)
		}
		b, vote := &raftlog.Batch{}, uint64(0)
		b.Append(id, entries, &raftpb.HardState{Term: &term, Vote: &vote, Commit: &last})
		if err := w.stores[i].Append(b); err != nil {
			w.t.Fatal(err)
		}
	}
}

// write returns a command that commits a row at the timestamp.
func write(epoch uint64, row string, ts mvcc.Timestamp) *wire.Command {
	m := mvcc.Mutation{
		Group: mvcc.GroupWrite, Cell: mvcc.Cell{Table: table, Row: row, Column: "v"},
		Write: &mvcc.Write{CommitTS: ts, StartTS: ts - 1, Kind: mvcc.KindPut, Value: []byte(row)},
	}
	encoder := store.NewEncoder([]mvcc.Mutation{m}, true)
	key, value := encoder.Encode(&m)
	return &wire.Command{Epoch: epoch, Effects: []*wire.Effect{{Key: key, Value: value}}}
}

// mapped returns a command that adds tablets to the tablet map.
func mapped(epoch uint64, all ...*pb.TabletDescriptor) *wire.Command {
	c := &wire.Command{Epoch: epoch}
	for _, d := range all {
		value, err := proto.Marshal(d)
		if err != nil {
			panic(err)
		}
		m := mvcc.Mutation{
			Group: mvcc.GroupRaw, Value: value,
			Cell: mvcc.Cell{Table: mvcc.MetaTable, Row: fmt.Sprintf("tablet/%d", d.TabletId)},
		}
		encoder := store.NewEncoder([]mvcc.Mutation{m}, true)
		key, value := encoder.Encode(&m)
		c.Effects = append(c.Effects, &wire.Effect{Key: key, Value: value})
	}
	return c
}

// inspect inspects the stores of the nodes.
func (w *world) inspect(nodes ...int) (out []*Inspection) {
	w.t.Helper()
	for _, i := range nodes {
		in, err := Inspect(w.stores[i])
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, in)
	}
	return out
}

// plan plans the recovery with these survivors; all other nodes are dead.
func (w *world) plan(gaps bool, nodes ...int) (*Plan, error) {
	w.t.Helper()
	var dead []uint64
	for i, id := range w.ids {
		if !slices.Contains(nodes, i) {
			dead = append(dead, id)
		}
	}
	return Make(w.inspect(nodes...), Options{Dead: dead, AcceptGaps: gaps, Now: time.Now()})
}

// apply plans and applies the recovery on all survivors.
func (w *world) apply(nodes ...int) *Plan {
	w.t.Helper()
	plan, err := w.plan(false, nodes...)
	for _, i := range nodes {
		if err == nil {
			err = Apply(w.stores[i], plan, "me")
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return plan
}

// rows returns the rows of the table in the store.
func (w *world) rows(i int) (out []string) {
	w.t.Helper()
	snap := w.stores[i].Snap()
	defer snap.Close()
	for c, err := range snap.Cells(mvcc.Span{Table: table}, false) {
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, c.Cell.Row)
	}
	return out
}

// stored returns the descriptor of the tablet's replica in the store; nil if there is none.
func (w *world) stored(i int, id uint64) *pb.TabletDescriptor {
	w.t.Helper()
	r, _, err := snapshot.StoredReplica(w.stores[i], id)
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Descriptor
}

// crash simulates a power failure of the node's machine; seed decides what has survived.
func (w *world) crash(i int, seed uint64) {
	w.t.Helper()
	st, err := w.stores[i].Reopen(rand.New(rand.NewPCG(seed, 1)))
	if err == nil {
		err = w.stores[i].Close()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.stores[i] = st
}

// of returns the plan's entry for the tablet; Tablet is 0 if there is none.
func of(plan *Plan, id uint64) (out Tablet) {
	for _, t := range plan.Tablets {
		if t.Tablet == id {
			return t
		}
	}
	return out
}

var errCut = errors.New("cut")
