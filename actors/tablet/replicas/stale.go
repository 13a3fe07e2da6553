package replicas

import (
	"context"
	"errors"
	"fmt"

	"github.com/percolator-go/percolator/actors/tablet/group"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
)

// Stale replicas, whose log lacks entries that they have acknowledged (package group). The
// mark is durable in the tablet's tombstone until the replica is destroyed like any that
// its group has removed. Its rows are kept until then, because they may be the best copy if
// the others are lost. Stale may be called by any goroutine; its work is a task of the
// tablet. Discard runs on its caller's goroutine.

// Stale records that the tablet's replica here is stale. Its actor calls it, and takes no part in
// its group from then on.
func (s *Set) Stale(tablet uint64) {
	r := snapshot.Replica{Tablet: tablet, ReplicaID: s.current(tablet)}
	s.enqueue(tablet, func() {
		if err := s.markStale(r); err != nil {
			s.logger.Error("cannot record that a replica is stale", "tablet", tablet, "error", err)
		}
	})
}

// Discard marks the replicas that Start has found, or will find, as stale: this node's
// directory is an older copy. It skips those that have no other replica anywhere, since
// nothing could replace them, and returns their tablets as alone. The marks are durable
// when it returns no error. It reopens running replicas and waits for that until ctx ends.
func (s *Set) Discard(ctx context.Context) (alone []uint64, err error) {
	s.mu.Lock()
	running := s.running
	s.mu.Unlock()
	if !running {
		// An interrupted installation may still become a replica.
		if err := s.installer.Recover(); err != nil {
			return nil, fmt.Errorf("replicas: finish the installation of replicas: %w", err)
		}
	}
	stored, err := snapshot.StoredReplicas(s.store)
	if err != nil {
		return nil, fmt.Errorf("replicas: list the stored replicas: %w", err)
	}
	var old []snapshot.Replica
	for _, r := range stored {
		switch {
		case r.Marked || running && !s.isInitial(r):
		case len(r.Descriptor.GetReplicas()) == 1 && group.Replica(r.Descriptor, r.ReplicaID) != nil:
			alone = append(alone, r.Tablet)
		default:
			old = append(old, r)
		}
	}
	if !running {
		return alone, s.installer.MarkStale(old)
	}
	return alone, s.reopenStale(ctx, old)
}

// isInitial reports whether the replica was in the store when Start ran.
func (s *Set) isInitial(r snapshot.Replica) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.initial[r.Tablet] == r.ReplicaID
}

// reopenStale marks running replicas as stale and reopens them, in tasks of their tablets,
// and waits for the tasks.
func (s *Set) reopenStale(ctx context.Context, replicas []snapshot.Replica) error {
	done := make(chan error, len(replicas))
	for _, r := range replicas {
		s.enqueue(r.Tablet, func() {
			err := s.markStale(r)
			if err == nil {
				err = s.reopen(r.Tablet)
			}
			done <- err
		})
	}
	var errs []error
	for range replicas {
		select {
		case err := <-done:
			errs = append(errs, err)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.life.Done():
			return context.Cause(s.life)
		}
	}
	return errors.Join(errs...)
}

// markStale records that the replica is stale, unless it was removed. It is called in a task of
// the tablet.
func (s *Set) markStale(r snapshot.Replica) error {
	if r.ReplicaID == 0 || s.current(r.Tablet) != r.ReplicaID {
		return nil
	}
	if err := s.installer.MarkStale([]snapshot.Replica{r}); err != nil {
		return fmt.Errorf("replicas: mark tablet %d as stale: %w", r.Tablet, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setStaleLocked(s.held[r.Tablet])
	return nil
}

// setStaleLocked marks and counts a stale replica.
func (s *Set) setStaleLocked(h *replica) {
	if !h.stale {
		h.stale = true
		s.found++
	}
}
