package placement

import (
	"context"
	"errors"
	"time"
)

// This file has nodes forgotten: their records removed, so that the node table does not
// fill up with nodes that were replaced long ago. It belongs to the actor, at the end of
// a turn.

// maxForgets is how many nodes are forgotten in one turn.
const maxForgets = 8

// forget removes the records of nodes that have been away for long and hold nothing. When
// meta's leader has just changed nobody is forgotten: all nodes may have been away, and
// be coming back one after the other.
func (w *work) forget(ctx context.Context, now time.Time, s *State) error {
	if w.began.IsZero() {
		w.began = now
	}
	if now.Sub(w.began) < min(w.cfg.GoneAfter, w.cfg.ForgetAfter) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	holds := map[uint64]bool{}
	for _, t := range s.Tablets {
		for _, r := range t.D.GetReplicas() {
			holds[r.GetNodeId()] = true
		}
	}
	var errs []error
	forgotten := 0
	for _, n := range s.Nodes {
		if !n.Old || n.Alive || holds[n.ID] || forgotten == maxForgets {
			continue
		}
		forgotten++
		err := w.cfg.Meta.ForgetNode(ctx, n.ID)
		if err == nil {
			w.cfg.Logger.Info("placement: a node that holds nothing has been away for long and is forgotten", "node", n.ID, "away_for_more_than", w.cfg.ForgetAfter)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
