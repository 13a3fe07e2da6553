package tablet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// TestHalve: the row that halves the total weight of all groups; none for a single row, however
// large.
func TestHalve(t *testing.T) {
	w := func(row string, n uint64) store.Weight { return store.Weight{Row: row, Bytes: n} }
	for name, tc := range map[string]struct {
		weights []store.Weight
		half    string
	}{
		"nothing": {nil, ""},
		"one row": {[]store.Weight{w("a", 50), w("a", 50), w("a", 50)}, ""},
		"even":    {[]store.Weight{w("a", 10), w("b", 10), w("c", 10), w("d", 10)}, "c"},
		"two groups": {
			[]store.Weight{w("a", 1), w("d", 1), w("f", 1), w("c", 40), w("e", 40)}, "d",
		},
		"heavy first":  {[]store.Weight{w("a", 90), w("b", 1), w("c", 1)}, "b"},
		"heavy last":   {[]store.Weight{w("a", 1), w("b", 1), w("c", 90)}, "c"},
		"heavy in two": {[]store.Weight{w("a", 50), w("a", 50), w("b", 1)}, "b"},
	} {
		r := &measuring{weights: tc.weights}
		var want uint64
		for _, x := range tc.weights {
			want += x.Bytes
		}
		if total, half := r.halve(); half != tc.half || total != want {
			t.Errorf("%s: %d at %q, want %d at %q", name, total, half, want, tc.half)
		}
	}
}

// TestWeightsBounded: weights are joined beyond a bound, and their sum is kept.
func TestWeightsBounded(t *testing.T) {
	r := &measuring{step: weighStep}
	const n = 5 * maxWeights
	for i := range n {
		r.add([]store.Weight{{Row: fmt.Sprintf("%06d", i), Bytes: 2}})
		if len(r.weights) > maxWeights {
			t.Fatalf("%d weights", len(r.weights))
		}
	}
	total, half := r.halve()
	if total != 2*n || half < fmt.Sprintf("%06d", n/2-n/50) ||
		half > fmt.Sprintf("%06d", n/2+n/50) {
		t.Errorf("%d bytes, half at %s; want 2*n, half within n/50 of n/2", total, half)
	}
}

// TestLoadHalf: spread load is halved; load on one row gives no split point.
func TestLoadHalf(t *testing.T) {
	get := func(row string) []*Call {
		return []*Call{
			{Req: &pb.TabletRequest{
				Op: &pb.TabletRequest_Get{
					Get: &pb.GetRequest{Cells: []*pb.Cell{{Row: []byte(row)}}},
				},
			}},
		}
	}
	for name, tc := range map[string]struct {
		row  func(i int) string
		want bool
		low  string
		high string
	}{
		"spread": {func(i int) string {
			return fmt.Sprintf("%03d", i*37%256)
		}, true, "112", "144"},
		"one row": {func(int) string { return "hot" }, false, "", ""},
		"mostly one": {func(i int) string {
			return fmt.Sprintf("%d", max(0, i%10-8))
		}, false, "", ""},
		"two rows": {func(i int) string { return []string{"a", "b"}[i%2] }, true, "b", "b"},
		"hot and cold": {func(i int) string {
			return []string{"a", "hot", "hot", "z"}[i%4]
		}, true, "hot", "z"},
	} {
		l := &loads{}
		for i := range 1000 {
			l.sample(get(tc.row(i)))
			if i < leastSamples/2 && l.half() != "" {
				t.Fatalf("%s: a split after %d samples", name, i)
			}
		}
		if half := l.half(); (half != "") != tc.want || half < tc.low || half > tc.high {
			t.Errorf("%s: half at %q, want it from %q to %q", name, half, tc.low, tc.high)
		}
	}
}

// TestLoadRate: operations per second in the last window.
func TestLoadRate(t *testing.T) {
	l, begin := &loads{}, time.Now()
	for _, step := range []struct {
		after time.Duration
		ops   uint64
		want  uint64
	}{{0, 100, 0}, {time.Second, 5000, 0}, {2 * time.Second, 10_100, 5000},
		{3 * time.Second, 20_000, 5000}, {4 * time.Second, 10_100, 0}} {
		if got := l.perSecond(begin.Add(step.after), step.ops); got != step.want {
			t.Errorf("after %v: %d per second, want %d", step.after, got, step.want)
		}
	}
}

// TestMeasuredBesideAWrite: a measurement that misses a write which is counted and not visible yet
// is repeated.
func TestMeasuredBesideAWrite(t *testing.T) {
	const size = 100_000
	r := newRig(t, store.Options{InMemory: true})
	for i := range 4 {
		r.do(2, onePhaseOf(r.take(1), put(fmt.Sprint("row", i), strings.Repeat("v", size))))
	}
	release := r.holdApplies()
	late := r.start(2, onePhaseOf(r.take(1), put("row9", strings.Repeat("v", 2*size))))
	r.until(2, "it is counted", func(s *pb.StatusResponse) bool { return s.SizeBytes >= 6*size })
	r.do(2, &pb.TabletRequest{
		Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{MeasureAbove: 1}},
	})
	r.until(2, "it is measured", func(s *pb.StatusResponse) bool { return len(s.SizeKey) > 0 })
	release()
	await(t, late)
	r.until(2, "the result is applied", func(s *pb.StatusResponse) bool {
		return s.Proposals >= 6 && s.AppliedIndex == s.LastIndex
	})
	r.until(2, "all is in it", func(s *pb.StatusResponse) bool {
		return s.SizeBytes >= 6*size && s.SizeBytes < 6*size+size/10
	})
}

// TestMeasuredWithWhatCameSince: a measurement's result includes writes and deletions made during
// it.
func TestMeasuredWithWhatCameSince(t *testing.T) {
	snap := newRig(t, store.Options{InMemory: true}).store.Snap()
	defer snap.Close()
	var end store.WeighPlace
	for !end.Done() {
		var err error
		if _, end, err = snap.Weigh(mvcc.Span{Table: 16}, end, weighKeys, weighStep); err != nil {
			t.Fatal(err)
		}
	}
	for grown, want := range map[int64]uint64{0: 100, 30: 130, -40: 60, -200: 0} {
		s := sizing{grown: 7}
		s.run = &measuring{began: s.grown, step: weighStep}
		s.grown += grown
		last := &weighed{
			of: s.run, place: end, weights: []store.Weight{{Row: "a", Bytes: 60}, {Row: "b", Bytes: 40}},
		}
		if got, last := s.found(last, nil); got != want || !last {
			t.Errorf("%d bytes more: %d, %v, want %d", grown, got, last, want)
		}
	}
}
