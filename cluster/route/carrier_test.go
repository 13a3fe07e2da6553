package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// others maps the other nodes to their answers; one without is unreachable. It records the
// requests.
type others struct {
	mu    sync.Mutex
	nodes map[uint64]func(*wire.PeerRequest) (*wire.PeerResponse, error)
	asked []uint64
}

func (o *others) Call(ctx context.Context, node uint64,
	req *wire.PeerRequest) (*wire.PeerResponse, error) {
	o.mu.Lock()
	o.asked = append(o.asked, node)
	answer := o.nodes[node]
	o.mu.Unlock()
	if answer == nil {
		return nil, fmt.Errorf("%w: node %d is unreachable", txn.ErrNotSent, node)
	}
	r, err := answer(req)
	if errors.Is(err, errSilent) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return r, err
}

func (o *others) took() []uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	asked := o.asked
	o.asked = nil
	return asked
}

// Answers of nodes.
var (
	errSilent = errors.New("no answer ever comes")
	errGone   = errors.New("the connection broke")
)

func silent(*wire.PeerRequest) (*wire.PeerResponse, error) { return nil, errSilent }

func broke(*wire.PeerRequest) (*wire.PeerResponse, error) { return nil, errGone }

func leads(*wire.PeerRequest) (*wire.PeerResponse, error) {
	return ofTablet(&pb.TabletResponse{
		Result: &pb.TabletResponse_Mutation{Mutation: &pb.MutationResult{}},
	}), nil
}

func follows(leader uint64) func(*wire.PeerRequest) (*wire.PeerResponse, error) {
	return func(*wire.PeerRequest) (*wire.PeerResponse, error) {
		r := serverError(pb.Error_CODE_NOT_LEADER, "not here")
		r.Error.LeaderNode = leader
		return ofTablet(r), nil
	}
}

func ofTablet(r *pb.TabletResponse) *wire.PeerResponse {
	return &wire.PeerResponse{Body: &wire.PeerResponse_Tablet{Tablet: r}}
}

const testedTablet = 9

// carried is a carrier on node 1, which has no replica, and a tablet with replicas on nodes 2, 3
// and 4.
func carried(nodes map[uint64]func(*wire.PeerRequest) (*wire.PeerResponse, error)) (*Carrier,
	*others) {
	o := &others{nodes: nodes}
	router := NewRouter()
	router.Update(&pb.TabletDescriptor{TabletId: testedTablet, Epoch: 5, StartTable: 16,
		EndUnbounded: true, Replicas: []*pb.Replica{
			{ReplicaId: 1, NodeId: 2}, {ReplicaId: 2, NodeId: 3}, {ReplicaId: 3, NodeId: 4},
		}})
	return NewCarrier(router, 1, o, nil, nil), o
}

var (
	aRead  = &pb.TabletRequest{Op: &pb.TabletRequest_Get{Get: &pb.GetRequest{At: 1}}}
	aWrite = &pb.TabletRequest{
		Op: &pb.TabletRequest_OnePhase{OnePhase: &pb.OnePhaseRequest{StartTs: 1}},
	}
)

// TestCarrierFindsTheLeader: the nodes that receive the request, in order, and the result.
func TestCarrierFindsTheLeader(t *testing.T) {
	type nodes = map[uint64]func(*wire.PeerRequest) (*wire.PeerResponse, error)
	for name, c := range map[string]struct {
		nodes  nodes
		hint   uint64
		req    *pb.TabletRequest
		asked  []uint64
		code   pb.Error_Code
		sure   bool // an error: the outcome is unknown
		leader uint64
	}{
		"believed leader": {
			nodes: nodes{4: leads}, hint: 4, req: aWrite, asked: []uint64{4}, leader: 4,
		},
		"told by a follower": {
			nodes: nodes{2: follows(4), 4: leads}, req: aWrite, asked: []uint64{2, 4}, leader: 4,
		},
		"nobody knows": {
			nodes: nodes{2: follows(0), 3: follows(0), 4: leads}, req: aWrite,
			asked: []uint64{2, 3, 4}, leader: 4,
		},
		"moved to a node not in the map": {
			nodes: nodes{2: follows(8), 8: leads}, req: aWrite, asked: []uint64{2, 8}, leader: 8,
		},
		"believed leader is dead": {
			nodes: nodes{2: follows(0), 3: leads}, hint: 4, req: aWrite, asked: []uint64{4, 2, 3},
			leader: 3,
		},
		"each once, though they disagree": {nodes: nodes{
			2: follows(3), 3: follows(2), 4: follows(2),
		}, req: aWrite,
			asked: []uint64{2, 3, 4}, code: pb.Error_CODE_NOT_LEADER, leader: 2},
		"none is reached": {
			req: aWrite, asked: []uint64{2, 3, 4}, code: pb.Error_CODE_UNAVAILABLE,
		},
		"a mutation is not repeated": {
			nodes: nodes{2: broke, 3: leads}, req: aWrite, asked: []uint64{2}, sure: true,
		},
		"nor when the answer does not come": {
			nodes: nodes{2: silent, 3: leads}, req: aWrite, asked: []uint64{2}, sure: true,
		},
		"a read is": {
			nodes: nodes{2: broke, 3: leads}, req: aRead, asked: []uint64{2, 3}, leader: 3,
		},
		"a read is when no answer comes, too": {
			nodes: nodes{2: silent, 3: leads}, req: aRead, asked: []uint64{2, 3}, leader: 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				carrier, o := carried(c.nodes)
				carrier.router.HintLeader(testedTablet, c.hint)
				r, err := carrier.Send(t.Context(), &pb.TabletDescriptor{TabletId: testedTablet},
					c.req)
				if got := o.took(); !slices.Equal(got, c.asked) {
					t.Errorf("queried %v, want %v", got, c.asked)
				}
				if c.sure != (err != nil) || errors.Is(err, txn.ErrNotSent) {
					t.Errorf("error %v", err)
				}
				if got := r.GetError().GetCode(); got != c.code {
					t.Errorf("answer %v, want %v", got, c.code)
				}
				if got := carrier.router.Leader(testedTablet); got != c.leader {
					t.Errorf("node %d is believed to lead, want %d", got, c.leader)
				}
			})
		})
	}
}

// TestSenderRepeatsOnlyWhatItMay: Meta's sender waits for a leader and, after a lost answer,
// repeats idempotent requests; the outcome of the others is reported as unknown.
func TestSenderRepeatsOnlyWhatItMay(t *testing.T) {
	write := &pb.TabletRequest{Op: &pb.TabletRequest_RawWrite{RawWrite: &pb.RawWriteRequest{}}}
	catalogue := &pb.TabletRequest{
		Op: &pb.TabletRequest_SetCatalogue{SetCatalogue: &pb.SetCatalogueRequest{}},
	}
	for name, c := range map[string]struct {
		req     *pb.TabletRequest
		first   func(*wire.PeerRequest) (*wire.PeerResponse, error)
		unknown bool
	}{
		"a leader comes":           {write, follows(0), false},
		"a lost raw write":         {write, broke, true},
		"a lost raw write, silent": {write, silent, true},
		"a lost version":           {catalogue, broke, false},
		"a lost read":              {aRead, broke, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				answer := func(req *wire.PeerRequest) (*wire.PeerResponse, error) {
					if n++; n <= 3 {
						return c.first(req)
					}
					return leads(req)
				}
				carrier, _ := carried(map[uint64]func(*wire.PeerRequest) (*wire.PeerResponse,
					error){2: answer, 3: answer, 4: answer})
				_, err := carrier.Sender()(t.Context(), testedTablet, c.req)
				if c.unknown != errors.Is(err, ErrUnknown) || (!c.unknown && err != nil) {
					t.Errorf("after %d questions: %v", n, err)
				}
			})
		})
	}
}

// TestOraclesFollowTheLeader: timestamps are requested from meta's leader, through any node that
// knows it; the node records the greatest that passed through.
func TestOraclesFollowTheLeader(t *testing.T) {
	away := func(leader uint64) func(*wire.PeerRequest) (*wire.PeerResponse, error) {
		return func(*wire.PeerRequest) (*wire.PeerResponse, error) {
			return &wire.PeerResponse{
				Error: &pb.Error{Code: pb.Error_CODE_NOT_LEADER, LeaderNode: leader},
			}, nil
		}
	}
	gives := func(first uint64) func(*wire.PeerRequest) (*wire.PeerResponse, error) {
		return func(req *wire.PeerRequest) (*wire.PeerResponse, error) {
			n := req.GetTimestamps().GetCount()
			return &wire.PeerResponse{
				Body: &wire.PeerResponse_Timestamps{
					Timestamps: &pb.TimestampsResponse{First: first, Count: n},
				},
			}, nil
		}
	}
	o := &others{
		nodes: map[uint64]func(*wire.PeerRequest) (*wire.PeerResponse, error){2: away(3),
			3: gives(100)},
	}
	carrier := NewCarrier(NewRouter(), 1, o, cluster.NewAlone(cluster.Member{NodeID: 2}), nil)
	oracles := NewOracles(carrier, func() *OraclePort {
		return nil
	}, func(int) (mvcc.Timestamp, bool) { return 0, false })
	first, n, err := oracles.Ask(t.Context(), 4, false)
	if err != nil || first != 100 || n != 4 {
		t.Fatalf("%d timestamps from %d: %v", n, first, err)
	}
	if got := oracles.Seen(); got != 103 {
		t.Errorf("the greatest seen is %d, want 103", got)
	}
	o.took()
	if _, _, err := oracles.Ask(t.Context(), 1, false); err != nil ||
		!slices.Equal(o.took(), []uint64{3}) {
		t.Errorf("the second question did not go to the leader: %v", err)
	}
	o.nodes[3] = away(0)
	if _, _, err := oracles.Ask(t.Context(), 1, false); err == nil {
		t.Error("timestamps from nobody")
	}
	o.nodes[2] = gives(200)
	if first, _, err := oracles.Ask(t.Context(), 1, false); err != nil || first != mvcc.Timestamp(200) {
		t.Errorf("after the change of the leader: %d, %v", first, err)
	}
}
