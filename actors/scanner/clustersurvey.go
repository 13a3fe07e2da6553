package scanner

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/wire"
)

const (
	// surveyTimeout limits one request, which is answered from memory. All scanners of a
	// node wait for the requests under way.
	surveyTimeout = 250 * time.Millisecond
	// maxSurveyed limits the tablets that an answer names. The others are walked.
	maxSurveyed = 1 << 16
)

// ClusterSurvey is the Survey of a node. It asks all nodes which of the tablets that they lead
// have nothing for observers. One request to each node serves all scanners of this one. An
// answer names the clean tablets, not the dirty ones, so that tablets that it does not
// mention are walked, and so are all tablets of a node that does not answer.
//
// It owns the last answers, and what this node answers others about its own scanners.
// Scanners call Look on their goroutines, one of which asks the other nodes; requests of other
// nodes are answered on any goroutine, from memory.
type ClusterSurvey struct {
	cfg     SurveyConfig
	targets atomic.Pointer[[]notify.Target] // columns that this node's scanners scan; may be nil

	asking chan struct{} // capacity 1: held while others are asked
	last   atomic.Pointer[surveyed]
	news   uint64 // surveys whose answers differ from the previous ones; guarded by asking
}

var _ Survey = (*ClusterSurvey)(nil)

// SurveyConfig configures a ClusterSurvey. All fields are required.
type SurveyConfig struct {
	Node, Incarnation uint64
	IdleHints         IdleHints
	Leaders           Leaders
	Others            func() []uint64 // the other nodes that are believed alive
	// Ask sends the request to another node.
	Ask func(ctx context.Context, node uint64, q *wire.SurveyRequest) (*wire.Survey, error)
}

// IdleHints holds what the tablets that this node leads have published about themselves.
type IdleHints interface {
	// CleanTablets returns up to limit tablets without a dirty cell other than parked ones, and the
	// version to which the answer belongs.
	CleanTablets(limit int) (version uint64, tablets []uint64)
	IsClean(tablet uint64) bool
	IsSettled(tablet uint64) bool
	Version() uint64        // changes when answers of IsClean change
	SettledVersion() uint64 // changes when answers of IsSettled change
	Touch()                 // changes Version
}

// Leaders knows the leaders of tablets, as far as this node does.
type Leaders interface {
	Leader(tablet uint64) (node uint64) // 0 if it is not known
	LeadsHere(tablet uint64) bool
	Version() uint64 // changes when what is known changes
}

// surveyed is the result of asking the nodes once. It is immutable.
type surveyed struct {
	of      *ClusterSurvey
	taken   time.Time
	news    uint64                   // ClusterSurvey.news after this survey; 0: ctx ended before
	answers map[uint64]*surveyAnswer // by node, of the other nodes that have answered
}

// surveyAnswer is one node's answer. It is immutable.
type surveyAnswer struct {
	incarnation, version uint64
	clean                map[uint64]struct{}
	scanned              map[notify.Target]struct{}
}

// NewClusterSurvey returns a survey without answers.
func NewClusterSurvey(cfg SurveyConfig) *ClusterSurvey {
	return &ClusterSurvey{cfg: cfg, asking: make(chan struct{}, 1)}
}

// Look implements Survey. If ctx ends, nothing is known of other nodes.
func (s *ClusterSurvey) Look(ctx context.Context, age time.Duration) View {
	if v := s.recent(age); v != nil {
		return v
	}
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return &surveyed{of: s}
	}
	if v := s.recent(age); v != nil { // the previous holder of asking has just asked the nodes
		return v
	}
	v := &surveyed{of: s, taken: time.Now(), answers: s.ask(ctx)}
	if before := s.last.Load(); before == nil || !maps.Equal(before.answers, v.answers) {
		s.news++
	}
	v.news = s.news
	s.last.Store(v)
	return v
}

func (s *ClusterSurvey) recent(age time.Duration) *surveyed {
	if v := s.last.Load(); v != nil && time.Since(v.taken) < age {
		return v
	}
	return nil
}

// ask sends the request to all other nodes at once.
func (s *ClusterSurvey) ask(ctx context.Context) map[uint64]*surveyAnswer {
	others := s.cfg.Others()
	if len(others) == 0 {
		return nil
	}
	var before map[uint64]*surveyAnswer
	if v := s.last.Load(); v != nil {
		before = v.answers
	}
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	var (
		mu   sync.Mutex
		out  = map[uint64]*surveyAnswer{}
		runs sync.WaitGroup
	)
	for _, node := range others {
		runs.Go(func() {
			if a := s.askOne(ctx, node, before[node]); a != nil {
				mu.Lock()
				defer mu.Unlock()
				out[node] = a
			}
		})
	}
	runs.Wait()
	return out
}

// askOne queries one node, which may answer that its last answer is still valid. It returns nil if
// the node does not answer, or if that last answer is not the one in before.
func (s *ClusterSurvey) askOne(ctx context.Context, node uint64,
	before *surveyAnswer) *surveyAnswer {
	q := &wire.SurveyRequest{}
	if before != nil {
		q.Incarnation, q.Version = before.incarnation, before.version
	}
	a, err := s.cfg.Ask(ctx, node, q)
	switch {
	case err != nil || a == nil:
		return nil
	case !a.Unchanged:
	case before == nil || before.incarnation != a.Incarnation || before.version != a.Version:
		return nil
	default:
		return before
	}
	return readSurvey(a)
}

func readSurvey(a *wire.Survey) *surveyAnswer {
	out := &surveyAnswer{
		incarnation: a.Incarnation, version: a.Version,
		clean:   make(map[uint64]struct{}, len(a.Clean)),
		scanned: make(map[notify.Target]struct{}, len(a.Scanned)),
	}
	for _, id := range a.Clean {
		out.clean[id] = struct{}{}
	}
	for _, t := range a.Scanned {
		out.scanned[notify.Target{
			Table: mvcc.TableID(t.Table), Class: mvcc.Class(t.Class), Column: wire.String(t.Column),
		}] = struct{}{}
	}
	return out
}

// Settled implements Survey.
func (s *ClusterSurvey) Settled(tablet uint64) bool { return s.cfg.IdleHints.IsSettled(tablet) }

// SettledVersion implements Survey. Neither of the two terms decreases.
func (s *ClusterSurvey) SettledVersion() uint64 {
	return s.cfg.IdleHints.SettledVersion() + s.cfg.Leaders.Version()
}

// Clean implements View: it reports whether the believed leader has reported the tablet as clean.
// For tablets led by this node it uses the present state.
func (v *surveyed) Clean(tablet uint64) bool {
	cfg := &v.of.cfg
	leader := cfg.Leaders.Leader(tablet)
	if leader == cfg.Node || leader == 0 && cfg.Leaders.LeadsHere(tablet) {
		return cfg.IdleHints.IsClean(tablet)
	}
	a := v.answers[leader]
	if a == nil {
		return false
	}
	_, clean := a.clean[tablet]
	return clean
}

// Version implements View. None of the terms decreases from one survey to the next.
func (v *surveyed) Version() uint64 {
	return v.news + v.of.cfg.IdleHints.Version() + v.of.cfg.Leaders.Version()
}

// Scanning implements View.
func (v *surveyed) Scanning(t notify.Target) int {
	nodes := 1
	for _, a := range v.answers {
		if _, scans := a.scanned[t.Key()]; scans {
			nodes++
		}
	}
	return nodes
}

// Answer returns the answer to another node's request.
func (s *ClusterSurvey) Answer(q *wire.SurveyRequest) *wire.Survey {
	board, incarnation := s.cfg.IdleHints, s.cfg.Incarnation
	if q.GetIncarnation() == incarnation && q.GetVersion() == board.Version() {
		return &wire.Survey{Incarnation: incarnation, Version: q.GetVersion(), Unchanged: true}
	}
	version, clean := board.CleanTablets(maxSurveyed)
	a := &wire.Survey{Incarnation: incarnation, Version: version, Clean: clean}
	if targets := s.targets.Load(); targets != nil {
		for _, t := range *targets {
			a.Scanned = append(a.Scanned, &wire.SurveyTarget{
				Table: uint32(t.Table), Class: uint32(t.Class), Column: wire.Bytes(t.Column),
			})
		}
	}
	return a
}

// SetTargets sets the columns that this node's scanners scan, as reported to other nodes from now
// on. The caller must not change the slice afterwards.
func (s *ClusterSurvey) SetTargets(targets []notify.Target) {
	s.targets.Store(&targets)
	s.cfg.IdleHints.Touch()
}
