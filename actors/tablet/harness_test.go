package tablet

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/actors/tablet/reads"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	"github.com/percolator-go/percolator/actors/tablet/writers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// rig is a store with its writers and tablets, and a host that tests can inspect.
type rig struct {
	pipeline  int
	indexed   int
	maxWait   time.Duration
	maxDelay  time.Duration
	tb        testing.TB
	system    *actor.ActorSystem
	store     *store.Store
	logs      *writers.Pair
	readers   *reads.Pool
	sums      *Checksums
	idleHints IdleHints
	now       atomic.Uint64 // the last timestamp granted
	near      atomic.Bool   // timestamps are available without a message
	leading   chan *pb.TabletDescriptor
	failed    chan error // receives expected failures of tablets; nil: none is expected

	spawns     sync.WaitGroup
	mu         sync.Mutex
	ports      map[uint64]*Port
	hints      []mvcc.Cell
	timestamps func(n int, then func(mvcc.Timestamp, error)) // nil: at once
	// called in the tablet's turn before a near timestamp is given
	nearStop func()
	alone    PublishedLeadership // the answer of meta
}

func (r *rig) Timestamps(n int, _ *tracing.Span, then func(mvcc.Timestamp, error)) {
	r.mu.Lock()
	f := r.timestamps
	r.mu.Unlock()
	if f != nil {
		f(n, then)
		return
	}
	then(r.take(n), nil)
}

// TimestampsNow returns timestamps at once if the rig's oracle is near.
func (r *rig) TimestampsNow(n int) (mvcc.Timestamp, bool) {
	if !r.near.Load() {
		return 0, false
	}
	r.mu.Lock()
	f := r.nearStop
	r.mu.Unlock()
	if f != nil {
		f()
	}
	return r.take(n), true
}

func (r *rig) take(n int) mvcc.Timestamp {
	return mvcc.Timestamp(r.now.Add(uint64(n))) - mvcc.Timestamp(n) + 1
}

func (r *rig) SplitApplied(_, right *pb.TabletDescriptor) {
	r.spawns.Go(func() { r.spawn(right.TabletId) })
}

// Merging implements Host as package replicas does.
func (r *rig) Merging(m *snapshot.Merge) {
	r.spawns.Go(func() {
		for _, id := range []uint64{m.Merged.TabletId, m.Right.TabletId} {
			if err := r.system.Root.StopFuture(r.port(id).PID()).Wait(); err != nil {
				r.tb.Error(err)
			}
		}
		err := r.logs.Barrier()
		if err == nil {
			err = snapshot.NewInstaller(r.store, r.logs).Merge(m)
		}
		if err != nil {
			r.tb.Error(err)
			return
		}
		r.mu.Lock()
		delete(r.ports, m.Right.TabletId)
		r.mu.Unlock()
		r.spawn(m.Merged.TabletId)
	})
}

func (r *rig) Hint(cells []mvcc.Cell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hints = append(r.hints, cells...)
}

func (r *rig) Failed(id uint64, err error) {
	if r.failed == nil {
		r.tb.Errorf("tablet %d failed: %v", id, err)
		return
	}
	r.failed <- err
}

func (r *rig) Leading(d *pb.TabletDescriptor) { r.leading <- d }

func (r *rig) spawn(id uint64) {
	cfg := Config{
		IdleHints: &r.idleHints, Checksums: r.sums, Pipeline: r.pipeline, Indexed: r.indexed,
		MaxWait: r.maxWait, MaxDelay: r.maxDelay, Limits: mvcc.DefaultLimits(), Logger: slog.New(slog.DiscardHandler),
	}
	if id == MetaTabletID {
		cfg.Leadership = &r.alone
	}
	r.mu.Lock()
	// held until the port is set: a caller that sees that the tablet leads may request it
	defer r.mu.Unlock()
	p, err := Spawn(r.system, r.store, r.logs, r.readers, id, r, cfg)
	if err != nil {
		r.tb.Error(err)
		return
	}
	r.ports[id] = p
}

func (r *rig) port(id uint64) *Port {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ports[id]
}

// newRig starts meta and one tablet for all user tables.
func newRig(tb testing.TB, o store.Options) *rig {
	tb.Helper()
	return newPipelinedRig(tb, o, DefaultPipeline)
}

// rigReaders is the number of a rig's read workers.
const rigReaders = 2

// newPipelinedRig is newRig with another Config.Pipeline.
func newPipelinedRig(tb testing.TB, o store.Options, pipeline int) *rig {
	tb.Helper()
	return newRigOf(tb, o, pipeline,
		&pb.TabletDescriptor{TabletId: 2, Epoch: 1, StartTable: 16, EndUnbounded: true})
}

// newRigOf is newPipelinedRig with another tablet 2.
func newRigOf(tb testing.TB, o store.Options, pipeline int, second *pb.TabletDescriptor) *rig {
	tb.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	st, err := store.Open(o)
	if err != nil {
		tb.Fatal(err)
	}
	b := &store.Batch{}
	Bootstrap(b, &pb.TabletDescriptor{TabletId: 1, Epoch: 1, EndTable: 16}, 1)
	Bootstrap(b, second, 1)
	if err := st.StateWriter().Commit([]*store.Batch{b}); err != nil {
		tb.Fatal(err)
	}
	r := &rig{
		tb: tb, pipeline: pipeline, system: actorkit.NewSystem(o.Logger), store: st,
		ports: map[uint64]*Port{}, leading: make(chan *pb.TabletDescriptor, 64),
	}
	r.logs = writers.Spawn(r.system, st, actorkit.BatchConfig{}, o.Logger)
	r.readers = reads.NewPool(rigReaders)
	r.sums = NewChecksums(st, o.Logger)
	for id := uint64(1); id <= 2; id++ {
		r.spawn(id)
	}
	tb.Cleanup(r.close)
	for range 2 {
		r.awaitLeader()
	}
	return r
}

func (r *rig) awaitLeader() *pb.TabletDescriptor {
	r.tb.Helper()
	select {
	case d := <-r.leading:
		r.spawns.Wait() // it may lead before its port is set
		return d
	case <-time.After(30 * time.Second):
		r.tb.Fatal("no leader within 30 s")
		return nil
	}
}

func (r *rig) close() {
	r.spawns.Wait()
	for _, p := range r.ports {
		_ = r.system.Root.StopFuture(p.PID()).Wait()
	}
	if err := r.logs.Stop(); err != nil {
		r.tb.Error(err)
	}
	r.readers.Close()
	r.sums.Close()
	if err := r.store.Close(); err != nil {
		r.tb.Error(err)
	}
	r.system.Shutdown()
}

// do executes one operation on the tablet and fails the test unless the answer is a result.
func (r *rig) do(tablet uint64, req *pb.TabletRequest) *pb.TabletResponse {
	r.tb.Helper()
	resp := r.try(tablet, req)
	if resp.GetError() != nil {
		r.tb.Fatalf("%T: %v", req.Op, resp.Error)
	}
	return resp
}

func (r *rig) try(tablet uint64, req *pb.TabletRequest) *pb.TabletResponse {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	resp, err := r.port(tablet).Ask(ctx, req, false)
	if err != nil {
		r.tb.Fatalf("%T: %v", req.Op, err)
	}
	return resp
}

func cellOf(row string) *pb.Cell {
	return &pb.Cell{Table: 16, Row: []byte(row), Column: []byte("c")}
}

func put(row, value string) []*pb.CellWrite {
	return []*pb.CellWrite{{Cell: cellOf(row), Kind: pb.Kind_KIND_PUT, Value: []byte(value)}}
}

func onePhaseOf(start mvcc.Timestamp, writes []*pb.CellWrite) *pb.TabletRequest {
	return &pb.TabletRequest{
		Op: &pb.TabletRequest_OnePhase{
			OnePhase: &pb.OnePhaseRequest{StartTs: uint64(start), Writes: writes},
		},
	}
}

func getOf(at mvcc.Timestamp, rows ...string) *pb.TabletRequest {
	g := &pb.GetRequest{At: uint64(at)}
	for _, row := range rows {
		g.Cells = append(g.Cells, cellOf(row))
	}
	return &pb.TabletRequest{Op: &pb.TabletRequest_Get{Get: g}}
}

func (r *rig) SendRaft(m *wire.RaftMessage) { r.tb.Errorf("a message for another replica: %v", m) }

func (r *rig) Following(uint64, uint64)     {}
func (r *rig) Changed(*pb.TabletDescriptor) {}
func (r *rig) Stale(id uint64)              { r.tb.Errorf("tablet %d is stale", id) }
func (r *rig) Removed(id uint64)            { r.tb.Errorf("tablet %d removed", id) }
