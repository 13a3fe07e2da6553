package oracle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/broken"
)

// Judge decides whether this node's clock may be the one that timestamps follow (design
// section 6): one bad clock must not push the persisted mark a year ahead, for that can't
// be taken back. It compares the clock with those of other nodes that are alive, never
// with the mark, which another bad clock may have raised. A node whose clock is too far
// ahead hands meta's leadership to a voter whose clock is not, and gives no timestamps
// meanwhile.
//
// The oracle's actor asks it, before the first timestamps of a term; what it finds out it
// finds out on goroutines of its own, which Close joins. It owns how often the leadership
// was handed away lately, and how often that was tried in vain.
type Judge struct {
	cfg  JudgeConfig
	life context.Context // ends with Close
	end  context.CancelFunc
	runs sync.WaitGroup

	mu      sync.Mutex
	given   int       // how often the leadership was handed away lately
	failed  int       // how often that was tried in vain since
	givenAt time.Time // by this process's clock
}

// JudgeConfig is what a Judge needs of its node. All of it must be there.
type JudgeConfig struct {
	Self   uint64
	Now    func() time.Time // the oracle's clock
	Limit  time.Duration    // how far it may be ahead of the others' median
	Peers  func() []uint64  // other nodes that are believed alive
	Voters func() []uint64  // other nodes that vote in meta
	// Ask is one node's clock, in Unix milliseconds.
	Ask func(ctx context.Context, node uint64) (unixMs int64, err error)
	// HandOver has the node lead meta; it returns who does then.
	HandOver func(ctx context.Context, node uint64) (leader uint64, err error)
	// NotLeader is the error that says who leads meta; errors of Judge wrap it.
	NotLeader func(leader uint64) error
	Logger    *slog.Logger
}

// NewJudge returns a Judge that works until life ends or Close is called.
func NewJudge(life context.Context, cfg JudgeConfig) *Judge {
	j := &Judge{cfg: cfg}
	j.life, j.end = context.WithCancel(life)
	return j
}

const (
	// judgeAsk bounds the questions to the others: timestamps wait for them.
	judgeAsk = time.Second
	// judgePause is how long a node waits before it hands over again what has come back
	// to it, doubled each time up to judgeMaxPause; it is forgotten after judgeForget.
	judgePause    = 100 * time.Millisecond
	judgeMaxPause = 5 * time.Second
	judgeForget   = time.Minute
	// judgeTries is how often the others are asked in vain, or a handing over is tried,
	// before it counts as impossible.
	judgeTries = 3
	// judgeHandOver bounds one handing over of the leadership.
	judgeHandOver = 3 * time.Second
	// maxJudges bounds the nodes that are asked.
	maxJudges = 16
)

var (
	// errAhead: no timestamps were given out, because time must not follow this node's clock.
	errAhead = errors.New("oracle: this node's clock is too far ahead of the others' to give timestamps")
	// errUnjudged: no timestamps were given out, because it is not known whether time may
	// follow this node's clock.
	errUnjudged = errors.New("oracle: no other node has told its clock in time")
	errNoHeir   = errors.New("oracle: no voter of meta has told a clock that is better")
)

// Judge is Config.Judge.
func (j *Judge) Judge(_ uint64, then func(error)) {
	if len(j.cfg.Voters()) == 0 {
		then(nil)
		return
	}
	j.runs.Go(func() { then(j.judge()) })
}

// Close ends what is under way. Nothing may be judged after it.
func (j *Judge) Close() {
	j.end()
	j.runs.Wait()
}

func (j *Judge) judge() error {
	ahead := j.compare()
	if len(ahead) == 0 {
		// What is given out can't be taken back, and others are there, for they have
		// voted: they may be busy just now.
		if j.tryAgain() {
			return errUnjudged
		}
		return nil // there is nothing to go by
	}
	median := medianOf(ahead)
	if broken.AheadClock || median <= j.cfg.Limit {
		j.served()
		return nil
	}
	j.cfg.Logger.Error("the clock of this node is ahead of the others'; another node is to lead meta. Set the clock",
		"ahead", median, "limit", j.cfg.Limit)
	return j.decline(j.heirs(ahead, median))
}

// compare is how far this node's clock is ahead of each of the others that answer in time.
func (j *Judge) compare() map[uint64]time.Duration {
	ctx, cancel := context.WithTimeout(j.life, judgeAsk)
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
			middle := began.Add(j.cfg.Now().Sub(began) / 2)
			mu.Lock()
			defer mu.Unlock()
			out[node] = middle.Sub(time.UnixMilli(theirs))
		})
	}
	asked.Wait()
	return out
}

// medianOf is the median, of two in the middle the lower one: a clock is not wrong by one
// other's word against another's.
func medianOf(ahead map[uint64]time.Duration) time.Duration {
	sorted := make([]time.Duration, 0, len(ahead))
	for _, d := range ahead {
		sorted = append(sorted, d)
	}
	slices.Sort(sorted)
	return sorted[(len(sorted)-1)/2]
}

// heirs are the voters whose clocks are not ahead as well, in order.
func (j *Judge) heirs(ahead map[uint64]time.Duration, median time.Duration) []uint64 {
	var out []uint64
	for _, node := range j.cfg.Voters() {
		if d, answered := ahead[node]; answered && d >= median-j.cfg.Limit {
			out = append(out, node)
		}
	}
	slices.Sort(out)
	return out
}

// decline hands the leadership to one of the heirs. nil: nobody can have it, and this
// node must serve.
func (j *Judge) decline(heirs []uint64) error {
	if err := j.pause(); err != nil {
		return err
	}
	var errs []error
	for _, node := range heirs {
		ctx, cancel := context.WithTimeout(j.life, judgeHandOver)
		leader, err := j.cfg.HandOver(ctx, node)
		cancel()
		if err == nil && leader != j.cfg.Self {
			j.gave()
			return fmt.Errorf("%w: %w", errAhead, j.cfg.NotLeader(leader))
		}
		errs = append(errs, err)
	}
	if len(heirs) == 0 {
		errs = append(errs, errNoHeir)
	}
	if j.tryAgain() {
		return fmt.Errorf("%w: %w", errAhead, errors.Join(errs...))
	}
	j.cfg.Logger.Error("NO OTHER NODE CAN LEAD META: timestamps follow this node's clock although it is ahead of the others'",
		"error", errors.Join(errs...))
	return nil
}

// tryAgain counts an attempt in vain; false if it was the last one: then this node serves.
func (j *Judge) tryAgain() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed++; j.failed < judgeTries || j.life.Err() != nil {
		return true
	}
	j.failed = 0
	return false
}

// served forgets attempts in vain.
func (j *Judge) served() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed = 0
}

// gave counts a handing over.
func (j *Judge) gave() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.given, j.failed, j.givenAt = j.given+1, 0, time.Now()
}

// pause waits if the leadership was handed away lately and has come back.
func (j *Judge) pause() error {
	j.mu.Lock()
	if time.Since(j.givenAt) > judgeForget {
		j.given = 0
	}
	pause := time.Duration(0)
	if tries := j.given + j.failed; tries > 0 {
		pause = min(judgePause<<min(tries-1, 10), judgeMaxPause)
	}
	j.mu.Unlock()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-j.life.Done():
		return errAhead
	}
}
