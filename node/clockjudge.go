package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/percolator-go/percolator/actors/tablet"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/broken"
	"github.com/percolator-go/percolator/internal/wire"
)

// clockJudge decides whether this node's clock may be the one that timestamps follow
// (design section 6): one bad clock must not push the persisted mark a year ahead, for
// that can't be taken back. It compares the clock with those of other nodes that are
// alive, never with the mark, which another bad clock may have raised. A node whose clock
// is too far ahead hands meta's leadership to a voter whose clock is not, and gives no
// timestamps meanwhile.
type clockJudge struct {
	self   uint64
	now    func() time.Time // the oracle's clock
	limit  time.Duration    // how far it may be ahead of the others' median
	peers  func() []uint64  // other nodes that are believed alive
	voters func() []uint64  // other nodes that vote in meta
	// ask is one node's clock, in Unix milliseconds.
	ask func(ctx context.Context, node uint64) (unixMs int64, err error)
	// handOver has the node lead meta; it returns who does then.
	handOver func(ctx context.Context, node uint64) (leader uint64, err error)
	logger   *slog.Logger

	life context.Context // ends with close
	end  context.CancelFunc
	runs sync.WaitGroup

	mu      sync.Mutex
	given   int       // how often the leadership was handed away lately
	failed  int       // how often that was tried in vain since
	givenAt time.Time // by this process's clock
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
	// maxJudges bounds the nodes that are asked.
	maxJudges = 16
)

var (
	// errAhead: no timestamps were given out, because time must not follow this node's clock.
	errAhead = errors.New("node: this node's clock is too far ahead of the others' to give timestamps")
	// errUnjudged: no timestamps were given out, because it is not known whether time may
	// follow this node's clock.
	errUnjudged = errors.New("node: no other node has told its clock in time")
	errNoHeir   = errors.New("node: no voter of meta has told a clock that is better")
)

// Judge is oracle.Config.Judge.
func (j *clockJudge) Judge(_ uint64, then func(error)) {
	if len(j.voters()) == 0 {
		then(nil)
		return
	}
	j.runs.Go(func() { then(j.judge()) })
}

// close ends what is under way. Nothing may be judged after it.
func (j *clockJudge) close() {
	j.end()
	j.runs.Wait()
}

func (j *clockJudge) judge() error {
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
	if broken.AheadClock || median <= j.limit {
		j.served()
		return nil
	}
	j.logger.Error("the clock of this node is ahead of the others'; another node is to lead meta. Set the clock",
		"ahead", median, "limit", j.limit)
	return j.decline(j.heirs(ahead, median))
}

// compare is how far this node's clock is ahead of each of the others that answer in time.
func (j *clockJudge) compare() map[uint64]time.Duration {
	ctx, cancel := context.WithTimeout(j.life, judgeAsk)
	defer cancel()
	peers := j.peers()
	var mu sync.Mutex
	var asked sync.WaitGroup
	out := map[uint64]time.Duration{}
	for _, node := range peers[:min(len(peers), maxJudges)] {
		asked.Go(func() {
			began := j.now()
			theirs, err := j.ask(ctx, node)
			if err != nil || theirs == 0 {
				return
			}
			middle := began.Add(j.now().Sub(began) / 2)
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
func (j *clockJudge) heirs(ahead map[uint64]time.Duration, median time.Duration) []uint64 {
	var out []uint64
	for _, node := range j.voters() {
		if d, answered := ahead[node]; answered && d >= median-j.limit {
			out = append(out, node)
		}
	}
	slices.Sort(out)
	return out
}

// decline hands the leadership to one of the heirs. nil: nobody can have it, and this
// node must serve.
func (j *clockJudge) decline(heirs []uint64) error {
	if err := j.pause(); err != nil {
		return err
	}
	var errs []error
	for _, node := range heirs {
		ctx, cancel := context.WithTimeout(j.life, leaveOne)
		leader, err := j.handOver(ctx, node)
		cancel()
		if err == nil && leader != j.self {
			j.gave()
			return fmt.Errorf("%w: %w", errAhead, &cluster.NotLeader{Leader: leader})
		}
		errs = append(errs, err)
	}
	if len(heirs) == 0 {
		errs = append(errs, errNoHeir)
	}
	if j.tryAgain() {
		return fmt.Errorf("%w: %w", errAhead, errors.Join(errs...))
	}
	j.logger.Error("NO OTHER NODE CAN LEAD META: timestamps follow this node's clock although it is ahead of the others'",
		"error", errors.Join(errs...))
	return nil
}

// tryAgain counts an attempt in vain; false if it was the last one: then this node serves.
func (j *clockJudge) tryAgain() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed++; j.failed < judgeTries || j.life.Err() != nil {
		return true
	}
	j.failed = 0
	return false
}

// served forgets attempts in vain.
func (j *clockJudge) served() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed = 0
}

// gave counts a handing over.
func (j *clockJudge) gave() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.given, j.failed, j.givenAt = j.given+1, 0, time.Now()
}

// pause waits if the leadership was handed away lately and has come back.
func (j *clockJudge) pause() error {
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

// newClockJudge is the judge of the node's clock.
func (n *Node) newClockJudge() *clockJudge {
	j := &clockJudge{
		self: n.identity.NodeID, now: n.now, limit: n.cfg.MaxClockAhead, logger: n.cfg.Logger,
		ask: n.clockOf, handOver: n.giveMeta, voters: n.otherVoters,
		peers: func() (out []uint64) {
			for _, m := range n.members.Alive() {
				if m.NodeID != n.identity.NodeID {
					out = append(out, m.NodeID)
				}
			}
			return out
		},
	}
	j.life, j.end = context.WithCancel(n.life)
	return j
}

// now is the time by the oracle's clock.
func (n *Node) now() time.Time {
	if n.parts.Clock != nil {
		return n.parts.Clock()
	}
	return time.Now()
}

// otherVoters are the other nodes that vote in meta, as far as this one knows.
func (n *Node) otherVoters() (out []uint64) {
	if n.peers == nil {
		return nil
	}
	for _, r := range n.router.Descriptor(cluster.MetaTablet).GetReplicas() {
		if !r.Learner && !r.Outgoing && r.NodeId != n.identity.NodeID {
			out = append(out, r.NodeId)
		}
	}
	return out
}

// clockOf asks a node what time it is there.
func (n *Node) clockOf(ctx context.Context, node uint64) (unixMs int64, err error) {
	r, err := n.peers.Call(ctx, node, &wire.PeerRequest{Body: &wire.PeerRequest_Status{Status: &pb.NodeStatusRequest{Brief: true}}})
	return r.GetStatus().GetUnixMs(), err
}

// giveMeta has the node lead meta instead of this one.
func (n *Node) giveMeta(ctx context.Context, node uint64) (leader uint64, err error) {
	port := n.router.Port(cluster.MetaTablet)
	if port == nil {
		return 0, nil // it is not led from here
	}
	leader, err = tablet.TransferTo(ctx, port, node)
	if err == nil && leader != n.identity.NodeID {
		n.router.Unled(cluster.MetaTablet, n.identity.NodeID)
		if leader != 0 {
			n.router.Led(cluster.MetaTablet, leader)
		}
	}
	return leader, err
}
