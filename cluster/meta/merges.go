package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Merges of adjacent tablets (docs/adr/0053). There is no state here: the progress of a merge is
// in the two tablets, and Finish completes an interrupted one. Calls run on the goroutines of
// operators' requests on any node, one at a time on each node (ddl), and of the merger on the
// node that leads meta.

// Merges merges adjacent tablets.
type Merges struct {
	schema *Schema
	moves  *Moves
	ask    AskReplica
}

// AskReplica sends a request to one node's replica of a tablet, whether or not it leads.
type AskReplica func(ctx context.Context, node uint64, req *pb.TabletRequest) (*pb.TabletResponse, error)

var (
	// ErrApart reports that the replicas of the two tablets are not on the same nodes. A move of
	// one was ordered if placement allows it.
	ErrApart = errors.New("meta: the replicas of the two tablets are not on the same nodes")
	// ErrNotMerged reports that this call has not merged the two tablets. If the right one is still
	// frozen, Finish decides later whether they are merged.
	ErrNotMerged = errors.New("meta: the tablets were not merged")
)

const (
	// freezeTimeout limits the time between freezing a tablet and taking its rows, during which
	// it serves nothing; then it is released.
	freezeTimeout = 3 * time.Second
	// settleTimeout limits the completion of a merge, which ignores the end of the caller's
	// context.
	settleTimeout = 10 * time.Second
	mergePause    = 10 * time.Millisecond
	togetherPause = 200 * time.Millisecond // pause between checks for the completed moves
)

// MergeTablets merges the tablet that starts at the row of the table with the preceding one, and
// returns the tablet that then holds the row. If none starts there, it returns the tablet that
// holds the row. Until ctx ends it waits for placement, woken by place, to move the replicas to
// the same nodes. Even if the merge then fails, the row is no requested split key any more.
func (m *Merges) MergeTablets(ctx context.Context, name, row string,
	place func()) (*pb.TabletDescriptor, error) {
	t, err := m.schema.existing(ctx, name)
	if err != nil {
		return nil, err
	}
	if row == "" {
		return nil, refuse(pb.Error_CODE_INVALID, "the first tablet of a table is not merged: name a row at which another tablet starts")
	}
	at := wire.Position{Table: mvcc.TableID(t.Id), Row: row}
	if err := m.schema.forgetSplitKey(ctx, name, row); err != nil {
		return nil, err
	}
	for {
		d, err := m.MergeAt(ctx, at)
		if !errors.Is(err, ErrApart) {
			return d, err
		}
		place()
		if ended := txn.Sleep(ctx, togetherPause); ended != nil {
			return nil, fmt.Errorf("%w (%w)", err, ended)
		}
	}
}

// MergeAt merges the tablets on both sides of the position, and returns the tablet that then
// holds it. Errors: ErrApart, ErrNotMerged, and those of requests to the tablets.
func (m *Merges) MergeAt(ctx context.Context, at wire.Position) (*pb.TabletDescriptor, error) {
	if err := m.schema.ddl.lock(ctx); err != nil {
		return nil, err
	}
	defer m.schema.ddl.unlock()
	left, right, err := m.pair(ctx, at)
	if err != nil || right == nil {
		return left.GetTablet(), err
	}
	if right.GetFrozenFor() != nil || left.GetTook() != nil { // an earlier attempt was interrupted
		if err := m.Finish(ctx, right, left); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: an interrupted attempt had to be ended first; try again", ErrNotMerged)
	}
	if !wire.SameNodes(left.Tablet, right.Tablet) {
		return nil, errors.Join(ErrApart, m.bringTogether(ctx, left.Tablet, right.Tablet))
	}
	return m.merge(ctx, left.Tablet, right.Tablet)
}

// Mergeable returns a function that reports whether two adjacent tablets may be merged, and whether
// at once, because no one uses them: both are of dropped tables, or the right one is of dropped
// tables whose data is deleted. Otherwise they must be of one table and their boundary must not be
// a requested split key.
func (m *Merges) Mergeable(ctx context.Context) (
	func(left, right *pb.TabletDescriptor) (may, unused bool), error) {
	c, err := m.schema.observers.Catalogue(ctx)
	if err != nil {
		return nil, err
	}
	tables, err := m.schema.Tables(ctx)
	if err != nil {
		return nil, err
	}
	asked := map[wire.Position]bool{}
	live := map[mvcc.TableID]bool{}
	for _, t := range tables {
		live[mvcc.TableID(t.Id)] = true
		for _, key := range slices.Concat(t.SplitKeys, t.PendingSplitKeys) {
			asked[wire.Position{Table: mvcc.TableID(t.Id), Row: string(key)}] = true
		}
	}
	gone := &pb.Catalogue{Gone: c.GetGone()}
	return func(left, right *pb.TabletDescriptor) (may, unused bool) {
		at, table := wire.StartOf(right), wire.StartOf(left).Table
		if Unused(gone, right) || Unused(c, left) && Unused(c, right) {
			return true, true
		}
		return at.Row != "" && at.Table == table && live[table] && !asked[at], false
	}, nil
}

// pair returns the tablets on both sides of the position, as their leaders describe them. If no
// tablet starts there, left is the one that holds it and right is nil.
func (m *Merges) pair(ctx context.Context, at wire.Position) (left, right *pb.StatusResponse, err error) {
	if at.Table < mvcc.FirstUserTable || at == (wire.Position{Table: mvcc.FirstUserTable}) {
		return nil, nil, refuse(pb.Error_CODE_INVALID, "the meta tablet is not merged")
	}
	if err := m.schema.router.Refresh(ctx); err != nil {
		return nil, nil, err
	}
	held, err := m.schema.router.Find(ctx, at.Table, at.Row, 1)
	if err != nil {
		return nil, nil, err
	}
	if len(held) == 0 {
		return nil, nil, refuse(pb.Error_CODE_UNAVAILABLE, "no tablet is known to hold table %d row %.64q",
			at.Table, at.Row)
	}
	if right, err = m.status(ctx, held[0].TabletId); err != nil {
		return nil, nil, err
	}
	if start := wire.StartOf(right.Tablet); start != at {
		return right, nil, nil
	}
	for _, d := range m.schema.router.All() {
		if end, bounded := wire.EndOf(d); bounded && end == at {
			left, err = m.status(ctx, d.TabletId)
			break
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if end, bounded := wire.EndOf(left.GetTablet()); left == nil || !bounded || end != at {
		return nil, nil, refuse(pb.Error_CODE_UNAVAILABLE, "the tablet before table %d row %.64q is not known; try again",
			at.Table, at.Row)
	}
	return left, right, nil
}

// status returns the tablet's status from its leader.
func (m *Merges) status(ctx context.Context, tablet uint64) (*pb.StatusResponse, error) {
	r, err := m.schema.send(ctx, tablet, statusRequest(tablet))
	if err != nil {
		return nil, fmt.Errorf("meta: get the status of tablet %d: %w", tablet, err)
	}
	return r.GetStatus(), nil
}

func statusRequest(tablet uint64) *pb.TabletRequest {
	return &pb.TabletRequest{
		TabletId: tablet, Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}},
	}
}

// bringTogether orders one move of a replica of the right tablet to a node with a replica of the
// left one.
func (m *Merges) bringTogether(ctx context.Context, left, right *pb.TabletDescriptor) error {
	var from, to []uint64
	for _, r := range right.Replicas {
		if wire.ReplicaOn(left, r.NodeId) == nil {
			from = append(from, r.NodeId)
		}
	}
	for _, r := range left.Replicas {
		if wire.ReplicaOn(right, r.NodeId) == nil {
			to = append(to, r.NodeId)
		}
	}
	var refused error
	for _, f := range from {
		for _, t := range to {
			_, err := m.moves.OrderMove(ctx, &pb.MoveTabletRequest{
				TabletId: right.TabletId, FromNode: f, ToNode: t,
			})
			if err == nil || errors.Is(err, ErrOrdered) {
				return nil
			}
			refused = err // another pair may fit the zones
		}
	}
	return refused
}

// merge freezes the right tablet, waits until all of its replicas are frozen, and merges it into
// the left one. After a failure in between, settle determines the outcome.
func (m *Merges) merge(ctx context.Context, left, right *pb.TabletDescriptor) (*pb.TabletDescriptor, error) {
	frozen, err := m.freezeAndTake(ctx, left, right)
	// The tablet must not stay frozen because the caller's context ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if frozen == nil {
		now, lost := m.status(ctx, right.TabletId)
		if lost != nil || now.GetFrozenFor() == nil {
			return nil, fmt.Errorf("%w: freeze tablet %d: %w", ErrNotMerged, right.TabletId, err)
		}
		frozen = now.Tablet
	}
	merged, settled := m.settle(ctx, frozen, left)
	if merged == nil {
		return nil, fmt.Errorf("%w: finish the merge of tablet %d: %w", ErrNotMerged, right.TabletId,
			errors.Join(err, settled))
	}
	return merged, nil // if settled is an error, Finish completes the merge
}

// freezeAndTake performs the steps of a merge within freezeTimeout. It returns the frozen tablet,
// or nil if freezing may have failed.
func (m *Merges) freezeAndTake(ctx context.Context, left,
	right *pb.TabletDescriptor) (frozen *pb.TabletDescriptor, err error) {
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	if frozen, err = m.step(ctx, right, pb.MergeRequest_STEP_FREEZE, left); err != nil {
		return nil, err
	}
	if err = m.allFrozen(ctx, frozen); err == nil {
		_, err = m.step(ctx, left, pb.MergeRequest_STEP_TAKE, frozen)
	}
	return frozen, err
}

// step performs one step of a merge on the tablet and returns its descriptor afterwards.
func (m *Merges) step(ctx context.Context, d *pb.TabletDescriptor, step pb.MergeRequest_Step,
	other *pb.TabletDescriptor) (*pb.TabletDescriptor, error) {
	r, err := m.schema.send(ctx, d.TabletId, &pb.TabletRequest{
		Epoch: d.Epoch, Op: &pb.TabletRequest_Merge{Merge: &pb.MergeRequest{Step: step, Other: other}},
	})
	if err != nil {
		return nil, err
	}
	return r.GetMerge().GetTablet(), nil
}

// allFrozen waits until every replica of the tablet reports that it is durably frozen.
func (m *Merges) allFrozen(ctx context.Context, frozen *pb.TabletDescriptor) error {
	return m.await(ctx, frozen.TabletId, frozen.Replicas, len(frozen.Replicas), func(s *pb.StatusResponse) bool {
		return s.GetFrozenFor() != nil && s.GetTablet().GetEpoch() == frozen.Epoch
	})
}

// await waits until the status of at least n of the tablet's replicas satisfies the condition.
func (m *Merges) await(ctx context.Context, tablet uint64, replicas []*pb.Replica, n int,
	condition func(*pb.StatusResponse) bool) error {
	left := slices.Clone(replicas)
	for {
		left = slices.DeleteFunc(left, func(r *pb.Replica) bool {
			answer, err := m.ask(ctx, r.NodeId, statusRequest(tablet))
			return err == nil && condition(answer.GetStatus())
		})
		if len(replicas)-len(left) >= n {
			return nil
		}
		if err := txn.Sleep(ctx, mergePause); err != nil {
			return fmt.Errorf("meta: wait for the replica of tablet %d on node %d: %w", tablet,
				left[0].NodeId, err)
		}
	}
}

// settle returns the merged tablet if the left tablet has taken the rows of the frozen one.
// Otherwise it prevents that for good, releases the frozen one and returns nil. left describes the
// left tablet before the merge: the first entry at its epoch in that tablet's log decides.
func (m *Merges) settle(ctx context.Context, frozen, left *pb.TabletDescriptor) (*pb.TabletDescriptor, error) {
	for {
		now, err := m.status(ctx, left.TabletId)
		switch {
		case codeOf(err) == pb.Error_CODE_WRONG_TABLET:
			// The left tablet was itself merged into another one. If it had taken these rows
			// before, a majority of the frozen replicas would have been removed, and the release
			// below would fail.
			return nil, m.release(ctx, frozen)
		case err != nil:
			return nil, err
		case now.GetTook().GetTabletId() == frozen.TabletId:
			return now.Tablet, m.finishTaken(ctx, now)
		case now.GetTablet().GetEpoch() > left.Epoch:
			return nil, m.release(ctx, frozen)
		}
		// This entry fences off every request to take the rows.
		if _, err := m.step(ctx, left, pb.MergeRequest_STEP_RELEASE, nil); err != nil && ctx.Err() != nil {
			return nil, err
		}
		if err := txn.Sleep(ctx, mergePause); err != nil {
			return nil, err
		}
	}
}

// release releases the tablet. Releasing it again is no error.
func (m *Merges) release(ctx context.Context, frozen *pb.TabletDescriptor) error {
	_, err := m.step(ctx, frozen, pb.MergeRequest_STEP_RELEASE, nil)
	if codeOf(err) == pb.Error_CODE_WRONG_TABLET {
		return nil
	}
	return err
}

// finishTaken records a tablet that has taken another's rows, and releases it once a majority of
// the other's replicas has been removed.
func (m *Merges) finishTaken(ctx context.Context, s *pb.StatusResponse) error {
	d := s.Tablet
	m.schema.router.Update(d)
	if err := m.schema.tablets.Report(ctx, d); err != nil {
		return err
	}
	if err := m.schema.tablets.forgetMerged(ctx); err != nil {
		return err
	}
	err := m.await(ctx, d.TabletId, d.Replicas, len(d.Replicas)/2+1, func(s *pb.StatusResponse) bool {
		return s.GetTablet().GetEpoch() >= d.Epoch
	})
	if err != nil {
		return err
	}
	return m.release(ctx, d)
}

// Finish completes the interrupted merges in the leaders' statuses.
func (m *Merges) Finish(ctx context.Context, leaders ...*pb.StatusResponse) error {
	var errs []error
	for _, s := range leaders {
		switch {
		case s.GetTook() != nil:
			errs = append(errs, m.finishTaken(ctx, s))
		case s.GetFrozenFor() != nil:
			_, err := m.settle(ctx, s.Tablet, s.FrozenFor)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

var _ AskReplica = (*route.Carrier)(nil).AskReplica
