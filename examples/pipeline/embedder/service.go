package embedder

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Config configures a Service.
type Config struct {
	Latency  time.Duration // of each accepted call
	Rate     int           // accepted calls per second; 0: unlimited
	Failures float64       // fraction of calls that fail, alternately before and after payment
}

// MaxTexts is the maximum number of texts per call.
const MaxTexts = 32

// maxQuestion is the maximum size of a Question, in bytes.
const maxQuestion = 1 << 20

// Question is the body of a call.
type Question struct {
	Texts []string `json:"texts"`
	Keys  []string `json:"keys"` // idempotency key of each text
}

// Bill counts the service's calls and charges.
type Bill struct {
	Calls   int `json:"calls"`
	Refused int `json:"refused"` // calls above the rate
	Failed  int `json:"failed"`  // calls that failed before they were paid for
	Lost    int `json:"lost"`    // calls that were paid for and whose answer was lost

	Paid     int `json:"paid"`     // texts, once per key
	Distinct int `json:"distinct"` // different texts that were paid for
	Repeated int `json:"repeated"` // texts under a key that was already paid for
}

// Service is the service. Its methods are safe for concurrent use.
type Service struct {
	cfg Config
	mux *http.ServeMux

	mu     sync.Mutex
	random *rand.Rand
	next   time.Time       // earlier calls are refused
	keys   map[string]bool // paid for
	texts  map[string]bool // paid for
	bill   Bill
}

// New returns a service.
func New(cfg Config) *Service {
	s := &Service{
		cfg: cfg, mux: http.NewServeMux(), random: rand.New(rand.NewPCG(1, 2)),
		keys: map[string]bool{}, texts: map[string]bool{},
	}
	s.mux.HandleFunc("POST /embed", s.embed)
	s.mux.HandleFunc("GET /bill", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(s.Bill()) // fails only if the client is gone
	})
	return s
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Bill returns the counts so far.
func (s *Service) Bill() Bill {
	s.mu.Lock()
	defer s.mu.Unlock()
	bill := s.bill
	bill.Distinct = len(s.texts)
	return bill
}

func (s *Service) embed(w http.ResponseWriter, r *http.Request) {
	var q Question
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxQuestion)).Decode(&q)
	if err != nil || len(q.Texts) != len(q.Keys) || len(q.Texts) > MaxTexts {
		http.Error(w, fmt.Sprintf("want at most %d texts, and a key for each", MaxTexts),
			http.StatusBadRequest)
		return
	}
	wait, fails, lost := s.accept(q)
	switch {
	case wait > 0:
		w.Header().Set("Retry-After", fmt.Sprintf("%.3f", wait.Seconds()))
		http.Error(w, "too many calls", http.StatusTooManyRequests)
		return
	case fails:
		http.Error(w, "overloaded", http.StatusServiceUnavailable)
		return
	}
	select {
	case <-time.After(s.cfg.Latency):
	case <-r.Context().Done():
		return
	}
	if lost {
		panic(http.ErrAbortHandler) // closes the connection without an answer
	}
	vectors := make([][]float32, len(q.Texts))
	for i, text := range q.Texts {
		vectors[i] = Embed(text)
	}
	_ = json.NewEncoder(w).Encode(vectors) // fails only if the client is gone
}

// accept returns how long to wait if the call exceeds the rate, and otherwise whether it fails. If it
// does neither, its texts are paid for, also if the answer is to be lost.
func (s *Service) accept(q Question) (wait time.Duration, fails, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bill.Calls++
	now := time.Now()
	if wait := s.next.Sub(now); wait > 0 {
		s.bill.Refused++
		return wait, false, false
	}
	if s.cfg.Rate > 0 {
		s.next = now.Add(time.Second / time.Duration(s.cfg.Rate))
	}
	if s.random.Float64() < s.cfg.Failures {
		if s.bill.Failed <= s.bill.Lost {
			s.bill.Failed++
			return 0, true, false
		}
		lost = true
		s.bill.Lost++
	}
	for i, key := range q.Keys {
		if s.keys[key] {
			s.bill.Repeated++
			continue
		}
		s.keys[key], s.texts[q.Texts[i]] = true, true
		s.bill.Paid++
	}
	return 0, false, lost
}
