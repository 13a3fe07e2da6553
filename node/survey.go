package node

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/actors/scanner"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/wire"
)

const (
	// surveyTimeout bounds one question: it is answered from memory. All scanners of a
	// node wait for those that are under way.
	surveyTimeout = 250 * time.Millisecond
	// maxSurveyed bounds the tablets that an answer names: those over it are walked.
	maxSurveyed = 1 << 16
)

// survey is what nodes say of the tablets that they lead: which of them have nothing for
// observers. One question to each node serves all scanners of this one. An answer names
// the clean tablets, not the dirty ones, so that whatever it says nothing of is walked,
// as is all of a node that does not answer, or does not know the question. Safe for
// concurrent use.
type survey struct {
	n      *Node
	asking chan struct{} // capacity 1: held while others are asked
	last   atomic.Pointer[surveyed]
	news   uint64 // surveys of which an answer was new; of who holds asking
}

var _ scanner.Survey = (*survey)(nil)

// surveyed is what came of asking the nodes once. It is immutable.
type surveyed struct {
	n       *Node
	taken   time.Time
	news    uint64                   // others with the same have the same answers; 0: unlike any
	answers map[uint64]*surveyAnswer // of other nodes, by node; those that have answered
}

// surveyAnswer is one node's. It is immutable.
type surveyAnswer struct {
	incarnation, version uint64
	clean                map[uint64]struct{}
	scanned              map[notify.Target]struct{}
}

func newSurvey(n *Node) *survey { return &survey{n: n, asking: make(chan struct{}, 1)} }

// Look implements scanner.Survey. If ctx ends, nothing is known of other nodes.
func (s *survey) Look(ctx context.Context, age time.Duration) scanner.View {
	if v := s.recent(age); v != nil {
		return v
	}
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return &surveyed{n: s.n}
	}
	if v := s.recent(age); v != nil { // who was before this one has asked
		return v
	}
	v := &surveyed{n: s.n, taken: time.Now(), answers: s.ask(ctx)}
	if before := s.last.Load(); before == nil || !maps.Equal(before.answers, v.answers) {
		s.news++
	}
	v.news = s.news
	s.last.Store(v)
	return v
}

func (s *survey) recent(age time.Duration) *surveyed {
	if v := s.last.Load(); v != nil && time.Since(v.taken) < age {
		return v
	}
	return nil
}

// ask puts the question to all other nodes at once.
func (s *survey) ask(ctx context.Context) map[uint64]*surveyAnswer {
	if s.n.peers == nil {
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
	for _, m := range s.n.members.Alive() {
		if m.NodeID == s.n.identity.NodeID {
			continue
		}
		runs.Go(func() {
			if a := s.askOne(ctx, m, before[m.NodeID]); a != nil {
				mu.Lock()
				defer mu.Unlock()
				out[m.NodeID] = a
			}
		})
	}
	runs.Wait()
	return out
}

// askOne asks a node, which may say that its last answer holds still; nil: it does not say.
func (s *survey) askOne(ctx context.Context, m cluster.Member, before *surveyAnswer) *surveyAnswer {
	q := &wire.SurveyRequest{}
	if before != nil {
		q.Incarnation, q.Version = before.incarnation, before.version
	}
	r, err := s.n.peers.Call(ctx, m.NodeID, &wire.PeerRequest{Body: &wire.PeerRequest_Survey{Survey: q}})
	a := r.GetSurvey()
	switch {
	case err != nil || r.GetError() != nil || a == nil:
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
		clean: make(map[uint64]struct{}, len(a.Clean)), scanned: make(map[notify.Target]struct{}, len(a.Scanned)),
	}
	for _, id := range a.Clean {
		out.clean[id] = struct{}{}
	}
	for _, t := range a.Scanned {
		out.scanned[notify.Target{Table: mvcc.TableID(t.Table), Column: wire.String(t.Column)}] = struct{}{}
	}
	return out
}

// Settled implements scanner.Survey.
func (s *survey) Settled(tablet uint64) bool { return s.n.board.IsSettled(tablet) }

// SettledVersion implements scanner.Survey. What it adds up never gets less.
func (s *survey) SettledVersion() uint64 { return s.n.board.SettledVersion() + s.n.router.Version() }

// Clean implements scanner.View: who is believed to lead the tablet has said so. What
// this node leads it knows as of now.
func (v *surveyed) Clean(tablet uint64) bool {
	leader := v.n.router.Leader(tablet)
	if leader == v.n.identity.NodeID || leader == 0 && v.n.router.LeadsHere(tablet) {
		return v.n.board.IsClean(tablet)
	}
	a := v.answers[leader]
	if a == nil {
		return false
	}
	_, clean := a.clean[tablet]
	return clean
}

// Version implements scanner.View. What it adds up never gets less from one survey to the next.
func (v *surveyed) Version() uint64 { return v.news + v.n.board.Version() + v.n.router.Version() }

// Scanning implements scanner.View.
func (v *surveyed) Scanning(t notify.Target) int {
	nodes := 1
	for _, a := range v.answers {
		if _, scans := a.scanned[t]; scans {
			nodes++
		}
	}
	return nodes
}

// answerSurvey answers another node, from memory.
func (n *Node) answerSurvey(q *wire.SurveyRequest) *wire.PeerResponse {
	answer := func(a *wire.Survey) *wire.PeerResponse {
		a.Incarnation = n.identity.Incarnation
		return &wire.PeerResponse{Body: &wire.PeerResponse_Survey{Survey: a}}
	}
	if q.GetIncarnation() == n.identity.Incarnation && q.GetVersion() == n.board.Version() {
		return answer(&wire.Survey{Version: q.GetVersion(), Unchanged: true})
	}
	version, clean := n.board.Clean(maxSurveyed)
	a := &wire.Survey{Version: version, Clean: clean}
	for _, t := range n.scanning.get() {
		a.Scanned = append(a.Scanned, &wire.SurveyTarget{Table: uint32(t.Table), Column: wire.Bytes(t.Column)})
	}
	return answer(a)
}

// scanning is what this node's scanners look for, as other nodes are told. Safe for concurrent use.
type scanning struct {
	targets atomic.Pointer[[]notify.Target]
}

func (s *scanning) get() []notify.Target {
	if t := s.targets.Load(); t != nil {
		return *t
	}
	return nil
}

// scans makes known what this node's scanners look for from now on. The slice is not
// changed any more.
func (n *Node) scans(targets []notify.Target) {
	n.scanning.targets.Store(&targets)
	n.board.Touch()
}
