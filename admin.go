package percolator

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	"google.golang.org/grpc"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// Admin controls a cluster: observers, parked notifications, timers, tablets and the policy. The
// command line uses it too. It behaves the same in a node's process and over the network, where the
// client's certificate must have the role that each method names; if the nodes serve plain text,
// all methods are allowed. What an operator changes over the network is written to the audit log of
// the answering node. Its methods are safe for concurrent use. They return ErrInvalid for a request
// that cannot succeed, such as one that names no observer of the cluster, and ErrPermission,
// ErrUnavailable and ErrClosed.
type Admin struct{ db *DB }

// Admin returns the control of the cluster. It sends its requests through the handle: after
// DB.Close its methods return ErrClosed.
func (db *DB) Admin() *Admin { return &Admin{db} }

// call makes one request to the service for operators.
func call[Req, Resp any](ctx context.Context, a *Admin,
	method func(pb.AdminClient, context.Context, *Req, ...grpc.CallOption) (*Resp, error),
	req *Req) (*Resp, error) {
	if err := a.db.check(); err != nil {
		return nil, err
	}
	resp, err := method(a.db.c.Admin(), ctx, req)
	return resp, txn.MarkRefusal(err)
}

// ObserverInfo is an observer of the cluster's catalogue.
type ObserverInfo struct {
	Name   string
	Column Column
	Weak   bool
	Paused bool
	// Retired means that the observer's notifications are being removed; then the observer itself
	// is.
	Retired bool
	// Limit is the maximum number of concurrent runs in each process; 0 means as registered.
	Limit int
}

// Observer is an observer with the counts of its pending notifications and of its runs.
type Observer struct {
	ObserverInfo
	Pending ObserverPending
	Runs    RunStats
	// Replay is the observer's last replay; nil means there was none.
	Replay *Replay
}

// RunStats counts the runs of an observer on all nodes, each since its start, and on the workers
// that report to them. A run for n changes of a batch counts as n.
type RunStats struct {
	Runs        uint64 // begun
	Commits     uint64
	Conflicts   uint64 // repeated after a conflict or a lock; not counted as failures
	Failures    uint64 // errors, panics and exceeded deadlines
	Unavailable uint64 // no node served the run, or the function returned ErrUnavailable
	Skipped     uint64 // found processed; the function was not called
	Running     int    // now
	Queued      int    // now
	Backoff     int    // rows that now wait after a failed run
	// Nodes are the ids of the nodes that run the observer and are counted here. Silent are the ids
	// of live nodes that have not answered.
	Nodes, Silent []uint64
	// Versions are the registered versions of the observer with the Nodes that run them, lowest first.
	Versions []ObserverVersion
}

// ObserverVersion is a version of an observer (Version), and the ids of the nodes that run it.
type ObserverVersion struct {
	Version int
	Nodes   []uint64
}

// Observers returns the observers of the cluster, ordered by name. Role: reader.
func (a *Admin) Observers(ctx context.Context) ([]Observer, error) {
	if err := a.db.check(); err != nil {
		return nil, err
	}
	states, err := a.db.c.Observers(ctx)
	if err != nil {
		return nil, err
	}
	observers := make([]Observer, len(states))
	for i, s := range states {
		r := s.GetStatus()
		observers[i] = Observer{
			ObserverInfo: observerInfo(s.GetInfo()), Pending: observerPending(s),
			Replay: replayOf(s.GetBackfill()),
			Runs: RunStats{
				Runs: r.GetRuns(), Commits: r.GetCommits(), Conflicts: r.GetConflicts(),
				Failures: r.GetFailures(), Unavailable: r.GetUnavailable(), Skipped: r.GetSkipped(),
				Running: int(r.GetRunning()), Queued: int(r.GetQueued()),
				Backoff: int(r.GetWaiting()), Nodes: s.GetNodes(), Silent: s.GetSilent(),
			},
		}
		for _, v := range s.GetVersions() {
			observers[i].Runs.Versions = append(observers[i].Runs.Versions,
				ObserverVersion{int(v.Version), v.Nodes})
		}
	}
	slices.SortFunc(observers, func(a, b Observer) int { return strings.Compare(a.Name, b.Name) })
	return observers, nil
}

func observerInfo(i *pb.ObserverInfo) ObserverInfo {
	return ObserverInfo{
		Name: i.GetName(), Column: Column{i.GetTableName(), string(i.GetColumn())},
		Weak: i.GetWeak(), Paused: i.GetPaused(), Retired: i.GetRetired(), Limit: int(i.GetLimit()),
	}
}

// PauseObserver stops starting runs of the observer on all nodes; changes wait. It returns when
// all tablets and all live nodes have applied it. Pausing a paused observer changes nothing. Role:
// operator.
func (a *Admin) PauseObserver(ctx context.Context, name string) (ObserverInfo, error) {
	paused := true
	return a.control(ctx, &pb.ControlObserverRequest{Name: name, Paused: &paused})
}

// ResumeObserver undoes PauseObserver. Role: operator.
func (a *Admin) ResumeObserver(ctx context.Context, name string) (ObserverInfo, error) {
	paused := false
	return a.control(ctx, &pb.ControlObserverRequest{Name: name, Paused: &paused})
}

// LimitObserver sets the maximum number of concurrent runs of the observer in each process; 0
// restores the limit that the program has registered. Role: operator.
func (a *Admin) LimitObserver(ctx context.Context, name string, runs int) (ObserverInfo, error) {
	limit := uint32(runs)
	if runs < 0 || int(limit) != runs {
		return ObserverInfo{}, txn.Invalid("limit of %d runs of observer %q; it must be between "+
			"0 and %d", runs, name, uint32(math.MaxUint32))
	}
	return a.control(ctx, &pb.ControlObserverRequest{Name: name, Limit: &limit})
}

// RetireObserver removes the observer and its notifications from the cluster, in the background.
// The writes of its runs remain. A program that still registers it creates it again when it starts.
// Role: operator.
func (a *Admin) RetireObserver(ctx context.Context, name string) (ObserverInfo, error) {
	info, err := a.control(ctx, &pb.ControlObserverRequest{Name: name, Retire: true})
	info.Retired = err == nil // also if the observer has been removed by now
	return info, err
}

func (a *Admin) control(ctx context.Context, req *pb.ControlObserverRequest) (ObserverInfo, error) {
	resp, err := call(ctx, a, pb.AdminClient.ControlObserver, req)
	return observerInfo(resp.GetInfo()), err
}

// ReplayState is the state of a Replay.
type ReplayState string

// The states of a Replay.
const (
	ReplayRunning   ReplayState = "running"
	ReplayDone      ReplayState = "done" // all rows are marked; their runs may still be pending
	ReplayCancelled ReplayState = "cancelled"
	ReplayFailed    ReplayState = "failed" // Replay.Err is why
)

// Replay is the progress of a replay, which marks rows of an observer's column as changed: all, or
// those of BelowVersion.
type Replay struct {
	Observer string
	State    ReplayState
	StartTS  Timestamp // the rows that exist at this timestamp are marked
	Rows     uint64    // marked so far
	// Below is the version of BelowVersion, 0 for a replay of all rows. With it, Examined is the number of
	// rows read so far, marked or not.
	Below    int
	Examined uint64
	NextRow  string // rows before it are marked, if State is ReplayRunning
	Err      error  // why the replay does not continue; nil if it continues or has ended
}

// ReplayOption restricts a replay.
type ReplayOption func(*replayOptions)

type replayOptions struct{ below int }

// BelowVersion restricts a replay to the rows for which the observer's last run was of a version
// below n (Version); 0 means all rows. Rows for which it has never run, and rows that version n or
// a later one processes during the replay, are skipped. The observer must be strong, and all
// running processes must have registered it with version n or a later one.
func BelowVersion(n int) ReplayOption {
	return func(o *replayOptions) { o.below = n }
}

// ReplayObserver starts a replay: the observer runs once more for every row that its column has at
// this time, or for every row of the table if it is weak. The cluster performs it in the
// background, no faster than the observer runs; it survives restarts, and stops while the observer is
// paused. If one is running, ReplayObserver returns its progress; it refuses one of other rows
// (BelowVersion). Role: observer.
func (a *Admin) ReplayObserver(ctx context.Context, name string, opts ...ReplayOption) (Replay, error) {
	o := replayOptions{}
	for _, opt := range opts {
		opt(&o)
	}
	if o.below < 0 || o.below > math.MaxInt32 {
		return Replay{}, txn.Invalid("replay below version %d; it must be between 0 and %d", o.below, math.MaxInt32)
	}
	r, err := a.backfill(ctx, &pb.BackfillRequest{
		Name: name, Action: pb.BackfillRequest_ACTION_START, BelowVersion: uint32(o.below),
	})
	if r == nil {
		return Replay{}, err
	}
	return *r, err
}

// Replay returns the progress of the observer's last replay, or nil if there was none. Role:
// reader.
func (a *Admin) Replay(ctx context.Context, name string) (*Replay, error) {
	return a.backfill(ctx, &pb.BackfillRequest{Name: name, Action: pb.BackfillRequest_ACTION_READ})
}

// CancelReplay ends the observer's replay and returns its progress, or nil if there was none. Marked
// rows stay marked. Role: observer.
func (a *Admin) CancelReplay(ctx context.Context, name string) (*Replay, error) {
	return a.backfill(ctx, &pb.BackfillRequest{Name: name, Action: pb.BackfillRequest_ACTION_CANCEL})
}

func (a *Admin) backfill(ctx context.Context, req *pb.BackfillRequest) (*Replay, error) {
	resp, err := call(ctx, a, pb.AdminClient.Backfill, req)
	return replayOf(resp.GetBackfill()), err
}

func replayOf(b *pb.Backfill) *Replay {
	if b == nil {
		return nil
	}
	r := &Replay{
		Observer: b.GetName(), State: ReplayRunning, StartTS: Timestamp(b.GetTs()),
		Rows: b.GetRows(), NextRow: string(b.GetNextRow()),
		Below: int(b.GetBelowVersion()), Examined: b.GetExamined(),
	}
	if b.GetError() != "" {
		r.Err = errors.New(b.GetError())
	}
	switch {
	case b.GetDone():
		r.State = ReplayDone
	case b.GetCancelled():
		r.State = ReplayCancelled
	case r.Err != nil:
		r.State = ReplayFailed
	}
	return r
}
