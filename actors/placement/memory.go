package placement

import (
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// memory is what placement remembers of tablets from turn to turn. Losing it costs a move
// too many at worst.
type memory struct {
	rest   time.Duration
	tablet map[uint64]*past
}

type past struct {
	load     float64
	restTill time.Time // its replicas
	leadTill time.Time // its leader
	failures int       // of steps in a row
	tryAgain time.Time
}

func newMemory(rest time.Duration) *memory { return &memory{rest: rest, tablet: map[uint64]*past{}} }

func (m *memory) of(id uint64) *past {
	p := m.tablet[id]
	if p == nil {
		p = &past{load: -1}
		m.tablet[id] = p
	}
	return p
}

// look is the tablet's load, smoothed, and whether its replicas and its leader are to be
// left as they are.
func (m *memory) look(now time.Time, id uint64, s *pb.StatusResponse) (load float64, resting, leaderResting bool) {
	const share = 0.2 // of the newest figure
	p := m.of(id)
	switch {
	case s == nil:
	case p.load < 0:
		p.load = float64(s.Load)
	default:
		p.load += share * (float64(s.Load) - p.load)
	}
	return max(p.load, 0), now.Before(p.restTill), now.Before(p.leadTill)
}

// forget drops what is remembered of tablets that are not there.
func (m *memory) forget(there map[uint64]*pb.TabletDescriptor) {
	for id := range m.tablet {
		if there[id] == nil {
			delete(m.tablet, id)
		}
	}
}

// due reports whether a step for the tablet may be tried: one that fails is tried again
// after a pause that grows.
func (m *memory) due(now time.Time, id uint64) bool { return !now.Before(m.of(id).tryAgain) }

const (
	firstPause = 250 * time.Millisecond
	lastPause  = 30 * time.Second
)

// done notes how a step ended.
func (m *memory) done(now time.Time, st Step, err error) {
	p := m.of(st.Tablet)
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
