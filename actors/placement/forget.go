package placement

import (
	"context"
	"errors"
	"time"
)

// This file removes the records of nodes that have been absent for Config.ForgetAfter, so that the
// node table does not grow without bound. It runs at the end of a turn, on the actor's goroutine.

// maxForgets limits the records removed in one turn.
const maxForgets = 8

// forget removes the records of nodes that have been absent for ForgetAfter and hold no
// replica. It removes none until the shorter of GoneAfter and ForgetAfter has passed since this
// actor's first turn: the whole cluster may have been down, with nodes coming back one after the
// other.
func (w *work) forget(ctx context.Context, now time.Time, s *State) error {
	if w.firstTurn.IsZero() {
		w.firstTurn = now
	}
	if now.Sub(w.firstTurn) < min(w.cfg.GoneAfter, w.cfg.ForgetAfter) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
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
			w.cfg.Logger.Info("placement: removed the record of a long-absent node without replicas",
				"node", n.ID, "away_for_more_than", w.cfg.ForgetAfter)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
