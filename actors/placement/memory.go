package placement

import (
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// This file holds what placement remembers between turns. Only the actor's goroutine uses
// it, except done, which the steps of a turn call under a mutex.

// memory is what placement remembers of tablets from turn to turn. It is not durable:
// losing it costs at worst one move too many.
type memory struct {
	rest   time.Duration
	tablet map[uint64]*tabletMemory
}

type tabletMemory struct {
	load     float64   // operations per second, smoothed; negative before the first figure
	restTill time.Time // its replicas are not moved for balance before
	leadTill time.Time // its leader is not moved for balance before
	failures int       // failed steps in a row
	tryAgain time.Time // no step is tried before
}

func newMemory(rest time.Duration) *memory {
	return &memory{rest: rest, tablet: map[uint64]*tabletMemory{}}
}

func (m *memory) entry(id uint64) *tabletMemory {
	p := m.tablet[id]
	if p == nil {
		p = &tabletMemory{load: -1}
		m.tablet[id] = p
	}
	return p
}

// observe takes in the tablet's present load, if its leader has answered. It returns the
// smoothed load, and whether the replicas and the leader were changed too recently to be
// moved for balance.
func (m *memory) observe(
	now time.Time, id uint64, s *pb.StatusResponse,
) (load float64, resting, leaderResting bool) {
	const share = 0.2 // weight of the newest figure
	p := m.entry(id)
	switch {
	case s == nil:
	case p.load < 0:
		p.load = float64(s.Load)
	default:
		p.load += share * (float64(s.Load) - p.load)
	}
	return max(p.load, 0), now.Before(p.restTill), now.Before(p.leadTill)
}

// forget drops the entries of tablets that no longer exist.
func (m *memory) forget(existing map[uint64]*pb.TabletDescriptor) {
	for id := range m.tablet {
		if existing[id] == nil {
			delete(m.tablet, id)
		}
	}
}

// due reports whether a step for the tablet may be tried now. After a failure the tablet
// waits, twice as long each time from firstPause up to lastPause.
func (m *memory) due(now time.Time, id uint64) bool { return !now.Before(m.entry(id).tryAgain) }

const (
	firstPause = 250 * time.Millisecond
	lastPause  = 30 * time.Second
)

// done records how a step ended: a failure delays the next try, a success starts the
// tablet's rest from balancing.
func (m *memory) done(now time.Time, st Step, err error) {
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
	till := &p.restTill
	if st.Leader != 0 {
		till = &p.leadTill
	}
	if t := now.Add(rest); t.After(*till) {
		*till = t
	}
}
