package placement

import (
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// State of placement between turns. Only the actor's goroutine uses it, except done, which the
// steps of a turn call under a mutex.

// moveCooldown is the state of tablets between turns. It is not durable: losing it costs at most
// one unnecessary move of each tablet.
type moveCooldown struct {
	rest   time.Duration
	tablet map[uint64]*tabletCooldown
}

type tabletCooldown struct {
	load          float64   // operations per second, smoothed; negative before the first value
	replicasUntil time.Time // end of the cooldown for balancing moves of its replicas
	leaderUntil   time.Time // end of the cooldown for balancing moves of its leader
	failures      int       // consecutive failed steps
	tryAgain      time.Time // earliest next step
}

func newMoveCooldown(rest time.Duration) *moveCooldown {
	return &moveCooldown{rest: rest, tablet: map[uint64]*tabletCooldown{}}
}

func (m *moveCooldown) entry(id uint64) *tabletCooldown {
	p := m.tablet[id]
	if p == nil {
		p = &tabletCooldown{load: -1}
		m.tablet[id] = p
	}
	return p
}

// observe adds the tablet's current load, if its leader has responded. It returns the smoothed
// load, and whether the replicas and the leader were changed too recently to be moved for
// balance.
func (m *moveCooldown) observe(
	now time.Time, id uint64, s *pb.StatusResponse,
) (load float64, resting, leaderResting bool) {
	const share = 0.2 // weight of the newest load in the smoothed one
	p := m.entry(id)
	switch {
	case s == nil:
	case p.load < 0:
		p.load = float64(s.Load)
	default:
		p.load += share * (float64(s.Load) - p.load)
	}
	return max(p.load, 0), now.Before(p.replicasUntil), now.Before(p.leaderUntil)
}

// forget drops the entries of tablets that no longer exist.
func (m *moveCooldown) forget(existing map[uint64]*pb.TabletDescriptor) {
	for id := range m.tablet {
		if existing[id] == nil {
			delete(m.tablet, id)
		}
	}
}

// due reports whether a Step for the tablet, a change of its replicas or leader, may be tried now.
// After a failure the tablet waits, with a pause that doubles from firstPause up to lastPause.
func (m *moveCooldown) due(now time.Time, id uint64) bool { return !now.Before(m.entry(id).tryAgain) }

const (
	firstPause = 250 * time.Millisecond
	lastPause  = 30 * time.Second
)

// done records the result of a step: a failure delays the next attempt, a success starts the
// tablet's cooldown for balancing.
func (m *moveCooldown) done(now time.Time, st Step, err error) {
	p := m.entry(st.Tablet)
	if err != nil {
		p.tryAgain = now.Add(min(lastPause, firstPause<<min(p.failures, 10)))
		p.failures++
		return
	}
	p.failures = 0
	rest := m.rest
	if st.Ordered {
		rest *= 10
	}
	till := &p.replicasUntil
	if st.Leader != 0 {
		till = &p.leaderUntil
	}
	if t := now.Add(rest); t.After(*till) {
		*till = t
	}
}
