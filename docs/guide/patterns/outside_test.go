package patterns

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
)

// shop is a service that admits one call per gap and answers after took.
type shop struct {
	gap, took time.Duration

	mu    sync.Mutex
	next  time.Time
	calls int
	paid  map[string]int // by text
	down  bool
}

// ServeHTTP implements http.Handler.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var ask struct{ Texts, Keys []string }
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || len(ask.Texts) != len(ask.Keys) {
		http.Error(w, "what?", http.StatusBadRequest)
		return
	}
	if wait := s.admit(ask.Texts); wait > 0 {
		w.Header().Set("Retry-After", fmt.Sprintf("%.3f", wait.Seconds()))
		http.Error(w, "slow down", http.StatusTooManyRequests)
		return
	}
	select {
	case <-time.After(s.took):
	case <-r.Context().Done():
	}
	vectors := make([][]float32, len(ask.Texts))
	for i, text := range ask.Texts {
		vectors[i] = []float32{float32(len(text))}
	}
	_ = json.NewEncoder(w).Encode(vectors)
}

// admit returns the required wait, and counts the texts as paid for if it is 0.
func (s *shop) admit(texts []string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	now := time.Now()
	if wait := s.next.Sub(now); wait > 0 {
		return wait
	}
	if s.down {
		return 100 * time.Millisecond
	}
	s.next = now.Add(s.gap)
	for _, text := range texts {
		s.paid[text]++
	}
	return 0
}

// buy has 640 texts embedded and returns the duration.
func (s *shop) buy(t testing.TB, faults ...percolatortest.Fault) time.Duration {
	s.paid = map[string]int{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	n := percolatortest.Start(t, embedder{server.URL}.register)
	for _, f := range faults {
		n.Inject(t, f)
	}
	began := time.Now()
	n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
		for i := range 640 {
			body.Set(tx, fmt.Sprintf("text%03d", i), fmt.Sprintf("the text %d", i))
		}
		return nil
	})
	n.RunUntilIdle(t)
	took := time.Since(began)
	if got := n.Column(t, vectors.Column); len(got) != 640 {
		t.Errorf("%d texts have vectors", len(got))
	}
	if parked := n.Parked(t, "embed"); len(parked) != 0 {
		t.Errorf("parked: %v", parked)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for text, times := range s.paid {
		if times != 1 {
			t.Errorf("%q was paid for %d times", text, times)
		}
	}
	return took
}

// TestTextsArePaidForOnce: each of 640 texts is paid for once, although runs are repeated after
// conflicts, and a service that admits 100 calls per second receives at most 100.
func TestTextsArePaidForOnce(t *testing.T) {
	s := &shop{gap: 10 * time.Millisecond, took: 5 * time.Millisecond}
	took := s.buy(t, percolatortest.Fault{Kind: percolatortest.CommitConflicts, Observer: "embed", Times: 3})
	if t.Logf("%d calls in %v", s.calls, took); s.calls > 100 {
		t.Errorf("%d calls", s.calls)
	}
}

// BenchmarkRateLimitedService has 640 texts embedded by a service that admits 32 texts per call
// and 20 calls per second: in 0.95 s at best, by 20 calls.
func BenchmarkRateLimitedService(b *testing.B) {
	for b.Loop() {
		s := &shop{gap: 50 * time.Millisecond, took: 20 * time.Millisecond}
		took := s.buy(b)
		b.ReportMetric(took.Seconds(), "s")
		b.ReportMetric(float64(s.calls), "calls")
		b.ReportMetric(float64(len(s.paid)), "paid")
	}
}
