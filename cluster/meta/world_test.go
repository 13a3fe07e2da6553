package meta

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/evaluate"
	"github.com/percolator-go/percolator/internal/evaluate/evaluatetest"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

var errCrash = errors.New("crash")

// world fakes everything that a Meta uses: a meta tablet that applies the rules of raw cells, and
// tablets that split and store catalogues. It can fail at its n-th operation, before or after
// executing it.
type world struct {
	t      *testing.T
	mu     sync.Mutex
	view   *mvcctest.MemView
	router *route.Router
	held   map[uint64]*pb.TabletDescriptor
	has    map[uint64]uint64 // the catalogue's version
	frozen map[uint64]*pb.TabletDescriptor
	took   map[uint64]*pb.TabletDescriptor
	via    route.Sender // the path of newWorld's Meta to the tablets
	ops    int
	failAt int // 0: never
	after  bool
}

func newWorld(t *testing.T) (*world, *Meta) {
	w := &world{
		t: t, view: mvcctest.NewMemView(), router: route.NewRouter(),
		held: map[uint64]*pb.TabletDescriptor{}, has: map[uint64]uint64{},
		frozen: map[uint64]*pb.TabletDescriptor{}, took: map[uint64]*pb.TabletDescriptor{},
	}
	for _, d := range cluster.FirstTablets(7) {
		w.held[d.TabletId] = d
		w.router.Update(d)
	}
	w.via = w.send
	return w, New(func(ctx context.Context, tablet uint64,
		req *pb.TabletRequest) (*pb.TabletResponse, error) {
		return w.via(ctx, tablet, req)
	}, w.router, nil)
}

// register registers the observers and waits until every tablet has them, as nodes do.
func register(ctx context.Context, m *Meta, observers []*pb.ObserverInfo) error {
	if _, err := m.Observers.Enter(ctx, observers); err != nil {
		return err
	}
	return m.Observers.Sync(ctx)
}

func (w *world) send(ctx context.Context, tablet uint64,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ops++
	if w.ops == w.failAt && !w.after {
		return nil, errCrash
	}
	r, err := w.carryOut(tablet, req)
	if w.ops == w.failAt {
		return nil, errCrash
	}
	return r, err
}

func (w *world) carryOut(tablet uint64, req *pb.TabletRequest) (*pb.TabletResponse, error) {
	switch op := req.Op.(type) {
	case *pb.TabletRequest_RawGet, *pb.TabletRequest_RawScan:
		v := evaluatetest.Mem{MemView: w.view, Tablet: w.held[tablet], MaxSizes: mvcc.DefaultLimits()}
		r, _, err := evaluate.Read(v, req, 0)
		return r, err
	case *pb.TabletRequest_RawWrite:
		result, muts, err := evaluate.Rule(w.view, req, mvcc.DefaultLimits())
		w.view.Apply(muts)
		return evaluate.Result(result), err
	case *pb.TabletRequest_SetCatalogue:
		w.has[tablet] = max(w.has[tablet], op.SetCatalogue.Catalogue.Version)
		return &pb.TabletResponse{
			Result: &pb.TabletResponse_Mutation{Mutation: &pb.MutationResult{}},
		}, nil
	case *pb.TabletRequest_Status:
		return w.mergeStatus(tablet)
	case *pb.TabletRequest_Merge:
		return w.merge(tablet, req.Epoch, op.Merge)
	case *pb.TabletRequest_Split:
		return w.split(tablet, op.Split)
	}
	return nil, fmt.Errorf("unexpected %T", req.Op)
}

// split does what a tablet does; its node notifies the router at once.
func (w *world) split(tablet uint64, r *pb.SplitRequest) (*pb.TabletResponse, error) {
	d := w.held[tablet]
	at := wire.Position{Table: mvcc.TableID(r.Table), Row: wire.String(r.Row)}
	if !wire.Holds(d, at) {
		return nil, &txn.ServerError{Code: pb.Error_CODE_WRONG_TABLET}
	}
	if _, used := w.held[r.NewTabletId]; used {
		w.t.Errorf("tablet id %d is used twice", r.NewTabletId)
	}
	left, right := proto.CloneOf(d), proto.CloneOf(d)
	left.EndTable, left.EndRow, left.EndUnbounded, left.Epoch = r.Table, r.Row, false, d.Epoch+1
	right.StartTable, right.StartRow, right.TabletId, right.Epoch = r.Table, r.Row, r.NewTabletId,
		d.Epoch+1
	w.held[left.TabletId], w.held[right.TabletId] = left, right
	w.has[right.TabletId] = w.has[left.TabletId]
	w.router.Update(left)
	w.router.Update(right)
	return &pb.TabletResponse{
		Result: &pb.TabletResponse_Split{Split: &pb.SplitResponse{Left: left, Right: right}},
	}, nil
}
