package scanner

import (
	"context"
	"fmt"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

// said is a survey controlled by the test: every tablet that is not dirty is clean.
type said struct {
	dirty map[uint64]bool
	nodes int
	news  uint64
	ages  []time.Duration
}

func (s *said) Look(_ context.Context, age time.Duration) View {
	s.ages = append(s.ages, age)
	return s
}
func (s *said) SettledVersion() uint64     { return s.news + 1 }
func (s *said) Version() uint64            { return s.news + 1 }
func (s *said) Settled(id uint64) bool     { return !s.dirty[id] }
func (s *said) Clean(id uint64) bool       { return !s.dirty[id] }
func (s *said) Scanning(notify.Target) int { return max(s.nodes, 1) }

// surveyedWorld has n tablets of one row each, none dirty except those of the named rows.
func surveyedWorld(tablets int, dirty ...int) (*world, *said, Config, *time.Time) {
	w := newWorld(tablets)
	w.split(1)
	w.rows = nil
	for _, i := range dirty {
		w.rows = append(w.rows, row(i))
	}
	s := &said{dirty: map[uint64]bool{}}
	now := time.UnixMilli(1_000_000_000)
	cfg := w.config()
	cfg.Survey, cfg.Now = s, func() time.Time { return now }
	return w, s, cfg, &now
}

// TestSurveyIsBelieved: tablets that the survey reports as clean are not walked, all others are.
func TestSurveyIsBelieved(t *testing.T) {
	w, survey, cfg, _ := surveyedWorld(100, 41)
	dirty := w.tablets[41].TabletId
	survey.dirty[dirty] = true
	s := w.scan(cfg, 1)
	for range 10 {
		s.turn(t.Context())
	}
	if w.walks != 10 || len(w.offered) != 10 {
		t.Errorf("%d walks and %d cells offered in 10 turns: one tablet of 100 is dirty", w.walks,
			len(w.offered))
	}
	delete(survey.dirty, dirty)
	survey.news++
	for range 10 {
		s.turn(t.Context())
	}
	if w.walks != 10 {
		t.Errorf("%d walks in ten turns without a dirty tablet", w.walks-10)
	}
	if got := s.stats.Clean.Load(); got != 10*99+10*100 {
		t.Errorf("%d tablets were left out", got)
	}
	if last := survey.ages[len(survey.ages)-1]; last > cfg.PaceMax/2 {
		t.Errorf("an idle scanner believes what is %v old", last)
	}
	if busy := survey.ages[5]; busy > cfg.PaceMin {
		t.Errorf("a scanner that finds work believes what is %v old", busy)
	}
}

// TestSurveyHidesNothing: a survey that falsely reports dirty cells as clean delays them by at most
// a minute for each searching node, whatever turns scanners take, at the cost of no more walks than
// the rechecks.
func TestSurveyHidesNothing(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			const tablets, pause = 100, 700 * time.Millisecond
			w, survey, cfg, now := surveyedWorld(tablets, 3, 75, 99)
			survey.nodes = nodes
			shared := &choice{again: &rechecks{every: recheck}}
			var scanners []*scan
			for i := range uint64(4) {
				s := w.scan(cfg, i)
				s.choice = shared
				scanners = append(scanners, s)
			}
			found := map[mvcc.Cell]bool{}
			took := time.Duration(0)
			for ; len(found) < 3; took += pause {
				if took > time.Duration(nodes)*(recheck+2*time.Second) {
					t.Fatalf("SURVEY-HIDES: %d of 3 dirty cells found after %v", len(found), took)
				}
				scanners[int(took/pause)%4].turn(t.Context())
				for _, c := range w.offered {
					found[c] = true
				}
				*now = now.Add(pause)
			}
			if most := int(took.Seconds()*tablets/recheck.Seconds())/nodes + 1; w.walks > most {
				t.Errorf("%d walks in %v, at most %d are due", w.walks, took, most)
			}
		})
	}
}

// TestRecheckIsOneRequest: a tablet that is rechecked takes one request for all of its observed
// columns, and one more if one of them has a dirty cell. A leader of an earlier version, which
// ignores the list, is asked for each.
func TestRecheckIsOneRequest(t *testing.T) {
	for _, unprobed := range []bool{false, true} {
		t.Run(fmt.Sprint("unprobed=", unprobed), func(t *testing.T) {
			const tablets, seconds = 60, 60
			w, _, cfg, now := surveyedWorld(tablets, 7)
			w.unprobed = unprobed
			others := []notify.Target{{Table: 16, Column: "d"}, {Table: 16, Class: mvcc.ClassAck, Column: "c"}}
			cfg.Targets = append(cfg.Targets, others...)
			s := w.scan(cfg, 1)
			for range seconds + 1 {
				s.turn(t.Context())
				*now = now.Add(time.Second)
			}
			if len(w.offered) == 0 {
				t.Fatal("SURVEY-HIDES: a dirty cell is not found")
			}
			each := 1
			if unprobed {
				each += len(cfg.Targets)
			}
			if most := each*tablets + 5; w.walks > most || w.walks < each*tablets*9/10 {
				t.Errorf("%d requests for %d tablets, want %d for each", w.walks, tablets, each)
			}
		})
	}
}

// TestRechecksAreBounded: at most a few of many tablets are rechecked per second, and neither a
// long pause nor a clock that is set back causes a burst.
func TestRechecksAreBounded(t *testing.T) {
	r := &rechecks{every: time.Minute}
	now := time.UnixMilli(1_000_000_000)
	const tablets = 100_000
	seen, next := 0, 0
	for range 1000 {
		first, n := r.take(now, tablets, 1, 2)
		if n > 0 && first != next {
			t.Fatalf("%d and not %d is next", first, next)
		}
		next, seen = (first+n)%tablets, seen+n
		now = now.Add(100 * time.Millisecond)
	}
	if want := 100 * maxRechecks / 2; seen > want || seen < want-1 {
		t.Errorf("%d tablets in 100 s, want %d", seen, want)
	}
	if _, n := r.take(now.Add(time.Hour), tablets, 1, 2); n > maxRechecks {
		t.Errorf("%d tablets after an hour", n)
	}
	if _, n := r.take(now.Add(-time.Hour), tablets, 1, 2); n != 0 {
		t.Errorf("%d tablets after an hour back", n)
	}
	if first, n := r.take(now, 0, 1, 2); first != 0 || n != 0 {
		t.Errorf("%d of no tablets", n)
	}
	now = now.Add(2 * time.Minute)
	if first, n := r.take(now, 3, 0, 0); n > 3 || first > 2 {
		t.Errorf("%d from %d on, of 3", n, first)
	}
}

// TestSweeperSkipsSettledTablets: settled tablets are not walked, except for their recheck every
// few minutes.
func TestSweeperSkipsSettledTablets(t *testing.T) {
	w, survey, cfg, now := surveyedWorld(60)
	cfg.Resolver = resolverFunc(func(mvcc.LockInfo) (bool, error) { return false, nil })
	asked := map[uint64]int{}
	cfg.Walker = walkerFunc(func(d *pb.TabletDescriptor) { asked[d.TabletId]++ })
	s := newSweeper(cfg, &Stats{})
	survey.dirty[w.tablets[7].TabletId] = true
	for range 100 {
		s.turn(t.Context())
	}
	if len(asked) != 1 || asked[w.tablets[7].TabletId] != 100 {
		t.Errorf("asked %v", asked)
	}
	turns := int(sweepRechecks*recheck/sweepPause) + 10
	for range turns {
		*now = now.Add(sweepPause)
		s.turn(t.Context())
	}
	if len(asked) != 60 {
		t.Errorf("%d of 60 tablets were walked in %v", len(asked), time.Duration(turns)*sweepPause)
	}
	if n := asked[w.tablets[8].TabletId]; n > 2 {
		t.Errorf("a settled tablet was walked %d times", n)
	}
}

// walkerFunc records the walked tablets and finds nothing.
type walkerFunc func(*pb.TabletDescriptor)

func (f walkerFunc) Walk(_ context.Context, d *pb.TabletDescriptor,
	_ *pb.WalkRequest) (*pb.WalkResponse, error) {
	f(d)
	return &pb.WalkResponse{Done: true}, nil
}
