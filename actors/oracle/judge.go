package oracle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/txn"
)

// Judge decides whether timestamps may follow this node's clock (design section 6). One bad
// clock must not push the persisted mark far ahead, because that cannot be undone. Judge
// compares the clock with those of other live nodes, never with the mark, which another bad
// clock may have raised. A node whose clock is too far ahead transfers meta's leadership to
// a voter whose clock is not, and issues no timestamps meanwhile. If judgeTries attempts fail, it
// serves nevertheless.
//
// The oracle's actor calls it before the first timestamps of a term, and again when there are more
// voters. Each judgement runs on a goroutine of its own, which Close waits for. Judge owns the
// counts of recent transfers and of failed attempts.
type Judge struct {
	cfg    JudgeConfig
	ctx    context.Context // context of all judgements; Close cancels it
	cancel context.CancelFunc
	runs   sync.WaitGroup

	mu            sync.Mutex
	transfers     int       // recent transfers of the leadership
	failures      int       // failed attempts since the last transfer or success
	transferredAt time.Time // time of the last transfer, by this process's clock
}

// JudgeConfig configures a Judge. All fields are required.
type JudgeConfig struct {
	Self   uint64
	Now    func() time.Time // the oracle's clock
	Limit  time.Duration    // how far the clock may be ahead of the others' median
	Peers  func() []uint64  // the other nodes that are believed alive
	Voters func() []uint64  // the other nodes that vote in meta
	// Ask returns the node's clock, in Unix milliseconds.
	Ask func(ctx context.Context, node uint64) (unixMs int64, err error)
	// HandOver transfers meta's leadership to the node, and returns the leader afterwards.
	HandOver func(ctx context.Context, node uint64) (leader uint64, err error)
	// NotLeader returns the error that names meta's leader. The error of a judgement that has
	// transferred the leadership wraps it.
	NotLeader func(leader uint64) error
	Logger    *slog.Logger
}

// NewJudge returns a Judge that works until life ends or Close is called.
func NewJudge(life context.Context, cfg JudgeConfig) *Judge {
	j := &Judge{cfg: cfg}
	j.ctx, j.cancel = context.WithCancel(life)
	return j
}

const (
	// judgeAsk limits the requests for the others' clocks: timestamps wait for them.
	judgeAsk = time.Second
	// judgePause is the time before a node transfers a leadership that has returned to it, or tries
	// again after a failure. It doubles each time up to judgeMaxPause. Transfers no longer count
	// when the last one is longer ago than judgeForget.
	judgePause    = 100 * time.Millisecond
	judgeMaxPause = 5 * time.Second
	judgeForget   = time.Minute
	// judgeTries is the number of consecutive failed attempts to query the other nodes, or to
	// transfer, after which this node serves regardless.
	judgeTries = 3
	// judgeHandOver limits one transfer of the leadership.
	judgeHandOver = 3 * time.Second
	// maxJudges limits the nodes that are asked.
	maxJudges = 16
)

var (
	// errAhead reports that this node's clock must not determine timestamps.
	errAhead = errors.New("oracle: this node's clock is too far ahead of the others' to grant timestamps")
	// errUnjudged reports that this node's clock could not be compared with another's.
	errUnjudged    = errors.New("oracle: no other node reported its clock in time")
	errNoSuccessor = errors.New("oracle: no voter of meta reported a better clock")
)

// Judge implements Config.Judge. It accepts the clock of the only voter at once.
func (j *Judge) Judge(_ uint64, then func(error)) {
	if len(j.cfg.Voters()) == 0 {
		then(nil)
		return
	}
	j.runs.Go(func() { then(j.judge()) })
}

// Close cancels the judgements under way and waits for them. Judge must not be called after
// it.
func (j *Judge) Close() {
	j.cancel()
	j.runs.Wait()
}

// judge compares the clock with the others' and returns nil if this node may serve.
func (j *Judge) judge() error {
	ahead := j.compare()
	if len(ahead) == 0 {
		// Timestamps cannot be taken back once issued, so first try again: the others have just
		// voted and are likely to answer. After judgeTries failed attempts serve without a
		// comparison rather than not at all.
		if j.retryAllowed() {
			return errUnjudged
		}
		return nil
	}
	median := medianOf(ahead)
	if median <= j.cfg.Limit {
		j.resetFailures()
		return nil
	}
	j.cfg.Logger.Error("oracle: this node's clock is ahead of the others', so another node must lead meta; set the clock",
		"ahead", median, "limit", j.cfg.Limit)
	return j.transferLeadership(j.successors(ahead, median))
}

// compare asks the other nodes for their clocks and returns, by node, how far this node's
// clock is ahead. Nodes that do not answer in time are missing.
func (j *Judge) compare() map[uint64]time.Duration {
	ctx, cancel := context.WithTimeout(j.ctx, judgeAsk)
	defer cancel()
	peers := j.cfg.Peers()
	var mu sync.Mutex
	var asked sync.WaitGroup
	out := map[uint64]time.Duration{}
	for _, node := range peers[:min(len(peers), maxJudges)] {
		asked.Go(func() {
			began := j.cfg.Now()
			theirs, err := j.cfg.Ask(ctx, node)
			if err != nil || theirs == 0 {
				return
			}
			// Assume that the other clock was read halfway through the request.
			middle := began.Add(j.cfg.Now().Sub(began) / 2)
			mu.Lock()
			defer mu.Unlock()
			out[node] = middle.Sub(time.UnixMilli(theirs))
		})
	}
	asked.Wait()
	return out
}

// medianOf returns the median; of two values in the middle the lower one, so that a clock
// is not judged bad while half of the others agree with it.
func medianOf(ahead map[uint64]time.Duration) time.Duration {
	sorted := slices.Sorted(maps.Values(ahead))
	return sorted[(len(sorted)-1)/2]
}

// successors returns the voters that answered and whose clocks are ahead of the median by at most
// the limit, in order of node id.
func (j *Judge) successors(ahead map[uint64]time.Duration, median time.Duration) []uint64 {
	var out []uint64
	for _, node := range j.cfg.Voters() {
		if d, answered := ahead[node]; answered && d >= median-j.cfg.Limit {
			out = append(out, node)
		}
	}
	slices.Sort(out)
	return out
}

// transferLeadership transfers meta's leadership to one of the nodes and returns an error that
// names the new leader, or, if all of them fail, their errors. At the judgeTries-th failure it
// returns nil: this node must serve.
func (j *Judge) transferLeadership(nodes []uint64) error {
	if err := j.pause(); err != nil {
		return err
	}
	var errs []error
	for _, node := range nodes {
		ctx, cancel := context.WithTimeout(j.ctx, judgeHandOver)
		leader, err := j.cfg.HandOver(ctx, node)
		cancel()
		if err == nil && leader != j.cfg.Self {
			j.recordTransfer()
			return fmt.Errorf("%w: %w", errAhead, j.cfg.NotLeader(leader))
		}
		errs = append(errs, err)
	}
	if len(nodes) == 0 {
		errs = append(errs, errNoSuccessor)
	}
	if j.retryAllowed() {
		return fmt.Errorf("%w: %w", errAhead, errors.Join(errs...))
	}
	j.cfg.Logger.Error("NO OTHER NODE CAN LEAD META: timestamps follow this node's clock although it is ahead of the others'",
		"error", errors.Join(errs...))
	return nil
}

// retryAllowed counts a failed attempt and reports whether another one follows. At the
// judgeTries-th failure it returns false, and the node serves, unless Close was called.
func (j *Judge) retryAllowed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failures++; j.failures < judgeTries || j.ctx.Err() != nil {
		return true
	}
	j.failures = 0
	return false
}

// resetFailures sets the count of failed attempts to zero.
func (j *Judge) resetFailures() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failures = 0
}

// recordTransfer counts a transfer of the leadership.
func (j *Judge) recordTransfer() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.transfers, j.failures, j.transferredAt = j.transfers+1, 0, time.Now()
}

// pause waits if the leadership returned soon after a transfer, or if attempts failed, so that two
// nodes do not pass it back and forth without pause.
func (j *Judge) pause() error {
	j.mu.Lock()
	if time.Since(j.transferredAt) > judgeForget {
		j.transfers = 0
	}
	pause := time.Duration(0)
	if tries := j.transfers + j.failures; tries > 0 {
		pause = min(judgePause<<min(tries-1, 10), judgeMaxPause)
	}
	j.mu.Unlock()
	if txn.Sleep(j.ctx, pause) != nil {
		return errAhead
	}
	return nil
}
