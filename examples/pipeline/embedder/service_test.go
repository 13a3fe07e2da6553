package embedder

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// ask sends a request and returns the status (0: the answer was lost) and the answer.
func ask(t *testing.T, url string, q Question) (status int, vectors [][]float32, retryAfter string) {
	t.Helper()
	body, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(url+"/embed", "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, nil, ""
	}
	defer func() { _ = resp.Body.Close() }()
	_ = json.NewDecoder(resp.Body).Decode(&vectors) // nil if it was refused
	return resp.StatusCode, vectors, resp.Header.Get("Retry-After")
}

func start(t *testing.T, cfg Config) (*Service, string) {
	s := New(cfg)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server.URL
}

func TestEmbed(t *testing.T) {
	t.Parallel()
	dot := func(a, b []float32) (sum float64) {
		for i := range a {
			sum += float64(a[i] * b[i])
		}
		return sum
	}
	a, b, c := Embed("Reads a file."), Embed("reads the FILE"), Embed("Sums two numbers")
	if !slices.Equal(a, Embed("reads: a file")) {
		t.Error("case and punctuation count")
	}
	if length := dot(a, a); length < 0.999 || length > 1.001 {
		t.Errorf("the length is %v", length)
	}
	if dot(a, b) <= dot(a, c) {
		t.Error("a text with the same words is not nearer than one with others")
	}
}

// TestPaidOncePerKey makes every second call fail after payment: the same key is not paid for
// again, another key with the same text is.
func TestPaidOncePerKey(t *testing.T) {
	t.Parallel()
	s, url := start(t, Config{Failures: 1})
	q := Question{Texts: []string{"a", "b"}, Keys: []string{"1", "2"}}
	for _, want := range []int{http.StatusServiceUnavailable, 0, http.StatusServiceUnavailable, 0} {
		if status, _, _ := ask(t, url, q); status != want {
			t.Errorf("status %d, want %d", status, want)
		}
	}
	s.mu.Lock()
	s.cfg.Failures = 0
	s.mu.Unlock()
	status, got, _ := ask(t, url, Question{Texts: []string{"a", "b"}, Keys: []string{"1", "3"}})
	if status != http.StatusOK || len(got) != 2 || !slices.Equal(got[1], Embed("b")) {
		t.Errorf("status %d, vectors %v", status, got)
	}
	want := Bill{Calls: 5, Failed: 2, Lost: 2, Paid: 3, Distinct: 2, Repeated: 3}
	if got := s.Bill(); got != want {
		t.Errorf("the bill is %+v, want %+v", got, want)
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	s, url := start(t, Config{Rate: 1})
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		status, _, wait := ask(t, url, Question{Texts: []string{"a"}, Keys: []string{"1"}})
		if status != want || (wait != "") != (want != http.StatusOK) {
			t.Errorf("status %d, Retry-After %q; want status %d", status, wait, want)
		}
	}
	if status, _, _ := ask(t, url, Question{Texts: make([]string, 33), Keys: make([]string, 33)}); status !=
		http.StatusBadRequest {
		t.Errorf("33 texts: status %d", status)
	}
	if got := s.Bill(); got.Refused != 1 || got.Paid != 1 {
		t.Errorf("the bill is %+v", got)
	}
}
