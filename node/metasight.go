package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// metaSight knows whether meta answers this node, for those who ask whether it is ready: what it says is of some time ago,
// and however often it is asked, meta is asked one question at a time, with a pause after each. Where nobody asks, meta
// rests.
type metaSight struct {
	ask   func(ctx context.Context) error // one question to meta
	asked chan struct{}                   // capacity 1: somebody wants to know

	mu    sync.Mutex
	since time.Time // when the first question without an answer began, of those after the last that had one; zero: none
	err   error     // of the last one
}

const (
	// sightTimeout bounds one question, sightPause is the pause after it.
	sightTimeout = 2 * time.Second
	sightPause   = time.Second
	// sightPatience is how long meta may be out of sight: an election takes about a second, an overload may take more.
	sightPatience = 5 * time.Second
)

// errNoMeta: without meta there are no timestamps, and so no transactions.
var errNoMeta = errors.New("node: meta does not answer")

func newMetaSight(ask func(ctx context.Context) error) *metaSight {
	return &metaSight{ask: ask, asked: make(chan struct{}, 1)}
}

// lost is why the node is not ready: meta has not answered for longer than it may take. It does not wait.
func (s *metaSight) lost() error {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() || time.Since(s.since) < sightPatience {
		return nil
	}
	return fmt.Errorf("%w, for %v: %w", errNoMeta, time.Since(s.since).Round(time.Second), s.err)
}

// watch asks meta when somebody wants to know, and then until it answers, until ctx ends. It is a worker of the node.
func (s *metaSight) watch(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for lost := false; ; {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		if !lost {
			select {
			case <-s.asked:
			case <-ctx.Done():
				return
			}
		}
		lost = s.look(ctx)
		pause.Reset(sightPause)
	}
}

// look asks once; it reports whether there was no answer.
func (s *metaSight) look(ctx context.Context) bool {
	began := time.Now()
	attempt, cancel := context.WithTimeout(ctx, sightTimeout)
	defer cancel()
	err := s.ask(attempt)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err = err; err == nil {
		s.since = time.Time{}
	} else if s.since.IsZero() {
		s.since = began
	}
	return err != nil
}

// mapPause is how long a node that does not hold every tablet goes on with the tablet map that it knows, at least; a tenth
// of it at most is added by chance. Splits that it is not asked about, and does not hit upon, are known to it by then.
const mapPause = 20 * time.Second

// mapTimeout bounds one reading.
const mapTimeout = 5 * time.Second

// rereadMap reads the tablet map from time to time while needed says so, until ctx ends. It is a worker of the node.
func rereadMap(ctx context.Context, needed func() bool, read func(context.Context) error) {
	for {
		pause := time.NewTimer(mapPause + rand.N(mapPause/10))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
		if !needed() {
			continue
		}
		attempt, cancel := context.WithTimeout(ctx, mapTimeout)
		_ = read(attempt) // the next reading comes, and misses read it as well
		cancel()
	}
}

// holdsSome reports whether there are tablets that this node has no replica of, and so does not hear of.
func (n *Node) holdsSome() bool { return len(n.router.Held()) < len(n.router.All()) }
