package evaluate

import (
	"errors"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Rule evaluates an operation that maps to one function of internal/mvcc.
func Rule(v mvcc.View, req *pb.TabletRequest,
	lim mvcc.Limits) (mvcc.Result, []mvcc.Mutation, error) {
	switch op := req.Op.(type) {
	case *pb.TabletRequest_Prewrite:
		return mvcc.Prewrite(v, wire.Prewrite(op.Prewrite), lim)
	case *pb.TabletRequest_Commit:
		return mvcc.Commit(v, wire.Commit(op.Commit))
	case *pb.TabletRequest_Rollback:
		return mvcc.Rollback(v, wire.Rollback(op.Rollback))
	case *pb.TabletRequest_CheckTxnStatus:
		return mvcc.CheckTxnStatus(v, wire.CheckTxnStatus(op.CheckTxnStatus))
	case *pb.TabletRequest_ResolveLock:
		return mvcc.ResolveLock(v, wire.ResolveLock(op.ResolveLock))
	case *pb.TabletRequest_Heartbeat:
		return mvcc.Heartbeat(v, wire.Heartbeat(op.Heartbeat))
	case *pb.TabletRequest_Notify:
		return mvcc.NotifyCells(v, wire.NotifyCells(op.Notify))
	case *pb.TabletRequest_ClearNotify:
		return clearNotify(v, wire.ClearNotify(op.ClearNotify))
	case *pb.TabletRequest_FailNotify:
		return mvcc.FailNotify(v, wire.FailNotify(op.FailNotify))
	case *pb.TabletRequest_Restore:
		return mvcc.Restore(v, wire.Restore(op.Restore), lim)
	case *pb.TabletRequest_RawWrite:
		return mvcc.RawWrite(v, wire.RawWrite(op.RawWrite))
	}
	return mvcc.Result{}, nil, errNoRule
}

// clearNotify applies the rule to several cells. The result combines theirs; its CommitTS is that
// of the newest remaining entry.
func clearNotify(v mvcc.View, list []mvcc.ClearNotifyRequest) (all mvcc.Result,
	effects []mvcc.Mutation, err error) {
	for _, r := range list {
		result, muts, err := mvcc.ClearNotify(v, r)
		if err != nil {
			return mvcc.Result{}, nil, err
		}
		all.CommitTS = max(all.CommitTS, result.CommitTS)
		all.LeftTS = max(all.LeftTS, result.LeftTS)
		all.Ended, all.Left = append(all.Ended, result.Ended...), append(all.Left, result.Left...)
		effects = append(effects, muts...)
	}
	return all, effects, nil
}

var errNoRule = errors.New("evaluate: an operation without a rule")

// result is the answer to a mutation in one allocation.
type result struct {
	response pb.TabletResponse
	oneof    pb.TabletResponse_Mutation
	mutation pb.MutationResult
}

// Result returns the answer for a mutation's result.
func Result(r mvcc.Result) *pb.TabletResponse {
	a := &result{}
	a.response.Result, a.oneof.Mutation = &a.oneof, &a.mutation
	wire.FillResult(&a.mutation, &r)
	return &a.response
}

// Refusal returns the answer for a rule's error about an invalid request, or nil for other
// errors, which come from the store.
func Refusal(err error) *pb.TabletResponse {
	var limit *mvcc.LimitError
	switch {
	case errors.As(err, &limit):
		return wire.Failure(pb.Error_CODE_TOO_LARGE, "%v", err)
	case errors.Is(err, mvcc.ErrInvalid):
		return wire.Failure(pb.Error_CODE_INVALID, "%v", err)
	}
	return nil
}
