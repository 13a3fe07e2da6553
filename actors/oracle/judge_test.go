package oracle

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

const maxClockAhead = 5 * time.Second

// clocks are nodes 1 (the judge's own) to n with their clocks' offsets from the true time; node 1
// leads meta.
type clocks struct {
	ahead    map[uint64]time.Duration
	silent   map[uint64]bool // does not answer
	refuses  map[uint64]bool // can't lead
	learners map[uint64]bool // do not vote
	given    []uint64
}

func (c *clocks) judge(t *testing.T) *Judge {
	t.Helper()
	others := func() (out []uint64) {
		for node := range c.ahead {
			if node != 1 {
				out = append(out, node)
			}
		}
		return out
	}
	voters := func() []uint64 {
		return slices.DeleteFunc(others(), func(node uint64) bool { return c.learners[node] })
	}
	return NewJudge(t.Context(), JudgeConfig{
		Self: 1, Now: func() time.Time {
			return time.Now().Add(c.ahead[1])
		}, Limit: maxClockAhead, Logger: slog.New(slog.DiscardHandler),
		Peers: others, Voters: voters, NotLeader: func(leader uint64) error {
			return leaderIs(leader)
		},
		Ask: func(ctx context.Context, node uint64) (int64, error) {
			if c.silent[node] {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return time.Now().Add(c.ahead[node]).UnixMilli(), nil
		},
		HandOver: func(_ context.Context, node uint64) (uint64, error) {
			if c.refuses[node] {
				return 0, errors.New("it can't")
			}
			c.given = append(c.given, node)
			return node, nil
		},
	})
}

// leaderIs is the error that names meta's leader.
type leaderIs uint64

func (l leaderIs) Error() string { return "meta is led elsewhere" }

// verdict is the judge's decision and the time that it took.
func verdict(j *Judge) (took time.Duration, err error) {
	began, said := time.Now(), make(chan error, 1)
	j.Judge(1, func(err error) { said <- err })
	err = <-said
	return time.Since(began), err
}

// TestClockAheadDeclines: a node whose clock is ahead of the others' transfers the leadership to
// one whose clock is not; any other node serves. Catches BROKEN=ahead_clock.
func TestClockAheadDeclines(t *testing.T) {
	const year = 365 * 24 * time.Hour
	of := func(ahead ...time.Duration) map[uint64]time.Duration {
		out := map[uint64]time.Duration{}
		for i, d := range ahead {
			out[uint64(i+1)] = d
		}
		return out
	}
	for _, c := range []struct {
		name   string
		clocks clocks
		heir   uint64 // 0: the node serves
		atMost time.Duration
	}{
		{name: "all the same", clocks: clocks{ahead: of(0, 0, 0)}},
		{name: "a little ahead", clocks: clocks{ahead: of(maxClockAhead-time.Second, 0, 0)}},
		{name: "far behind", clocks: clocks{ahead: of(-year, 0, 0)}},
		{name: "the only voter", clocks: clocks{ahead: of(year)}},
		{name: "a year ahead", clocks: clocks{ahead: of(year, 0, 0)}, heir: 2},
		{name: "just too far ahead", clocks: clocks{ahead: of(maxClockAhead+time.Second, 0, 0)},
			heir: 2},
		{name: "another is ahead as well", clocks: clocks{ahead: of(year, year, 0, 0, 0)}, heir: 3},
		{name: "another is far behind", clocks: clocks{ahead: of(0, -year, 0)}},
		{name: "one that answers", clocks: clocks{
			ahead: of(year, 0, 0), silent: map[uint64]bool{2: true},
		}, heir: 3, atMost: judgeAsk},
		{name: "the first can't", clocks: clocks{
			ahead: of(year, 0, 0), refuses: map[uint64]bool{2: true},
		}, heir: 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			j := c.clocks.judge(t)
			defer j.Close()
			took, err := verdict(j)
			if took > c.atMost {
				t.Errorf("%s: judged in %v", c.name, took)
			}
			if c.heir == 0 {
				if err != nil || len(c.clocks.given) > 0 {
					t.Errorf("%s: declined: %v", c.name, err)
				}
				return
			}
			var away leaderIs
			if !errors.As(err, &away) || uint64(away) != c.heir || len(c.clocks.given) != 1 {
				t.Errorf("AHEAD-CLOCK: %s: %v, and not handed to node %d; handed to %v", c.name,
					err, c.heir, c.clocks.given)
			}
		})
	}
}

// TestClockUnheard: a node that receives no clock, or none of a voter, serves after some tries and
// not before: the others may be busy for a moment, and granted timestamps cannot be withdrawn.
func TestClockUnheard(t *testing.T) {
	for _, silent := range []map[uint64]bool{{2: true, 3: true, 4: true}, {2: true, 3: true}} {
		synctest.Test(t, func(t *testing.T) {
			c := clocks{
				ahead: map[uint64]time.Duration{1: time.Hour, 2: 0, 3: 0, 4: 0}, silent: silent,
				learners: map[uint64]bool{4: true},
			}
			j := c.judge(t)
			defer j.Close()
			for n := range 2 * judgeTries {
				if took, err := verdict(j); (err == nil) != (n%judgeTries == judgeTries-1) ||
					took > judgeAsk+judgeMaxPause {
					t.Errorf("AHEAD-CLOCK: try %d without a word from %v: %v after %v", n+1, silent,
						err, took)
				}
			}
			c.silent = nil
			if _, err := verdict(j); !errors.Is(err, errAhead) || len(c.given) != 1 {
				t.Errorf("the others answer again: %v", err)
			}
		})
	}
}

// TestClockAheadWithoutHeir: a node that is ahead serves after some tries when no other can lead; a
// leadership that returns to it is transferred again, with growing pauses.
func TestClockAheadWithoutHeir(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clocks{
			ahead:   map[uint64]time.Duration{1: time.Hour, 2: 0, 3: 0},
			refuses: map[uint64]bool{2: true, 3: true},
		}
		j := c.judge(t)
		defer j.Close()
		for n := 1; n <= judgeTries; n++ {
			if _, err := verdict(j); (err == nil) != (n == judgeTries) {
				t.Errorf("try %d: %v", n, err)
			}
		}
		c.refuses = nil
		last := time.Duration(0)
		for n := range 12 {
			took, err := verdict(j)
			if err == nil || (n > 1 && took < last) || took > judgeMaxPause {
				t.Errorf("return %d: %v after %v, and %v the time before", n, err, took, last)
			}
			last = took
		}
		if last != judgeMaxPause {
			t.Errorf("the pause has grown to %v", last)
		}
		<-time.After(2 * judgeForget)
		if took, _ := verdict(j); took != 0 {
			t.Errorf("what was long ago still counts: a pause of %v", took)
		}
	})
}
