package backfill

import (
	"context"
	"time"

	"github.com/percolator-go/percolator/internal/wire"
)

// worker is the actor's state. Each turn does one step of every back-fill and every
// removal, on the actor's goroutine.
type worker struct {
	cfg Config
	// synced has the retired observers whose retirement every tablet has applied.
	synced map[string]bool
}

// progress is the result of a step.
type progress uint8

const (
	progressDone    progress = iota // nothing is left to do
	progressWaiting                 // the observer has to catch up first
	progressMore                    // the next step can follow at once
	progressFailed                  // the step is repeated after PaceRetry
)

// pause returns the time to wait before the next step.
func (w *worker) pause(p progress) time.Duration {
	switch p {
	case progressMore:
		return 0
	case progressWaiting:
		return paceWait
	case progressFailed:
		return w.cfg.PaceRetry
	}
	return w.cfg.PaceIdle
}

// turn does one step of each back-fill and removal, and returns the pause before the next
// turn: the shortest that any of them asks for.
func (w *worker) turn(ctx context.Context) time.Duration {
	metaCtx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	catalogue, err := w.cfg.Meta.Catalogue(metaCtx)
	if err != nil {
		return w.turnFailed(ctx, "the catalogue", err)
	}
	records, err := w.cfg.Meta.Backfills(metaCtx, catalogue.GetObservers())
	if err != nil {
		return w.turnFailed(ctx, "the records", err)
	}
	pause := w.cfg.PaceIdle
	for _, o := range catalogue.GetObservers() {
		b := records[o.Name]
		switch {
		case o.Retired:
			pause = min(pause, w.pause(w.remove(ctx, o, catalogue)))
		case wire.BackfillRuns(b):
			pause = min(pause, w.pause(w.fill(ctx, o, b)))
		}
	}
	return pause
}

// turnFailed logs why a turn could not begin and returns the pause before the next try.
func (w *worker) turnFailed(ctx context.Context, what string, err error) time.Duration {
	if ctx.Err() == nil {
		w.cfg.Logger.Warn("backfill: reading meta failed; trying again", "for", what, "error", err)
	}
	return w.cfg.PaceRetry
}
