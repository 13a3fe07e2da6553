package scanner

import (
	"context"
	"testing"

	"github.com/percolator-go/percolator/actors/tablet"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/wire"
)

// surveyOf returns node 1's survey with its knowledge of leaders.
func surveyOf() (*ClusterSurvey, *route.Router) {
	router := route.NewRouter()
	return NewClusterSurvey(SurveyConfig{
		Node: 1, Incarnation: 7, IdleHints: &tablet.IdleHints{}, Leaders: router,
	}), router
}

// TestSurveyRulesOutOnlyWhatIsSaid: a tablet counts as clean only if the node believed to lead it
// reports so. All others are walked: those without a known leader, with another leader, or led by a
// node that has not answered or does not support the request.
func TestSurveyRulesOutOnlyWhatIsSaid(t *testing.T) {
	survey, router := surveyOf()
	for tablet, leader := range map[uint64]uint64{10: 2, 11: 3, 12: 4, 13: 0, 14: 1, 15: 2} {
		router.HintLeader(tablet, leader)
	}
	says := func(tablets ...uint64) *surveyAnswer {
		a := &surveyAnswer{clean: map[uint64]struct{}{}}
		for _, id := range tablets {
			a.clean[id] = struct{}{}
		}
		return a
	}
	v := &surveyed{
		of: survey, answers: map[uint64]*surveyAnswer{2: says(10, 11, 12, 13, 14), 3: says(10)},
	}
	for tablet := uint64(9); tablet < 17; tablet++ {
		if got, want := v.Clean(tablet), tablet == 10; got != want {
			t.Errorf("tablet %d is clean: %t", tablet, got)
		}
	}
	router.ForgetNode(2) // it is known to be dead
	if v.Clean(10) {
		t.Error("a dead node's word counts")
	}
	if (&surveyed{of: survey}).Clean(10) {
		t.Error("a survey that no node has answered rules a tablet out")
	}
}

// TestSurveyAnswer: a tablet state that the requester has is not sent again, unless it has changed
// or belongs to an earlier incarnation.
func TestSurveyAnswer(t *testing.T) {
	survey, _ := surveyOf()
	first := survey.Answer(&wire.SurveyRequest{})
	if first.Unchanged || first.Incarnation != 7 || len(first.Scanned) != 0 {
		t.Errorf("the first answer is %v", first)
	}
	has := &wire.SurveyRequest{Incarnation: first.Incarnation, Version: first.Version}
	if again := survey.Answer(has); !again.Unchanged || again.Version != first.Version {
		t.Errorf("nothing has changed, and the answer is %v", again)
	}
	if other := survey.Answer(&wire.SurveyRequest{Incarnation: 6,
		Version: first.Version}); other.Unchanged {
		t.Error("what an earlier incarnation has said is confirmed")
	}
	target := notify.Target{Table: mvcc.FirstUserTable, Column: "c"}
	survey.SetTargets([]notify.Target{target})
	news := survey.Answer(has)
	if news.Unchanged || len(news.Scanned) != 1 {
		t.Fatalf("another column is looked for, and the answer is %v", news)
	}
	a := readSurvey(news)
	if v := (&surveyed{of: survey, answers: map[uint64]*surveyAnswer{2: a,
		3: {}}}); v.Scanning(target) != 2 {
		t.Errorf("%d nodes look for the column, not this one and another", v.Scanning(target))
	}
}

// TestUnchangedOfWhat: an answer "unchanged" is accepted only for tablets that the same node has
// reported before.
func TestUnchangedOfWhat(t *testing.T) {
	before := &surveyAnswer{incarnation: 6, version: 3, clean: map[uint64]struct{}{10: {}}}
	for name, test := range map[string]struct {
		before *surveyAnswer
		answer *wire.Survey
		want   bool // the known state is kept
	}{
		"the same":            {before, &wire.Survey{Incarnation: 6, Version: 3, Unchanged: true}, true},
		"another version":     {before, &wire.Survey{Incarnation: 6, Version: 4, Unchanged: true}, false},
		"another incarnation": {before, &wire.Survey{Incarnation: 7, Version: 3, Unchanged: true}, false},
		"of nothing":          {nil, &wire.Survey{Incarnation: 6, Version: 3, Unchanged: true}, false},
	} {
		survey, _ := surveyOf()
		survey.cfg.Ask = func(context.Context, uint64, *wire.SurveyRequest) (*wire.Survey, error) {
			return test.answer, nil
		}
		if got := survey.askOne(t.Context(), 2, test.before); (got == before) != test.want ||
			!test.want && got != nil {
			t.Errorf("SURVEY-HIDES: unchanged, %s: %+v", name, got)
		}
	}
}
