package backfill

import (
	"context"
	"time"

	"github.com/percolator-go/percolator/internal/wire"
)

// worker does a step of each back-fill and each removal in a turn. It belongs to its actor.
type worker struct {
	cfg Config
	// synced are retired observers that every tablet is known to know of as retired.
	synced map[string]bool
}

// progress is what a step has come to.
type progress uint8

const (
	ended   progress = iota // nothing is left to do
	waits                   // for the observer to catch up
	more                    // there is more to do at once
	failure                 // to be tried again
)

// pause is how long to wait before the next step.
func (w *worker) pause(p progress) time.Duration {
	switch p {
	case more:
		return 0
	case waits:
		return w.cfg.PaceWait
	case failure:
		return w.cfg.PaceRetry
	}
	return w.cfg.PaceIdle
}

// turn does one step of everything that there is to do and returns the pause before the next turn.
func (w *worker) turn(ctx context.Context) time.Duration {
	asked, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	catalogue, err := w.cfg.Meta.Catalogue(asked)
	if err != nil {
		return w.failed(ctx, "the catalogue", err)
	}
	records, err := w.cfg.Meta.Backfills(asked, catalogue.GetObservers())
	if err != nil {
		return w.failed(ctx, "the records", err)
	}
	pause := w.cfg.PaceIdle
	for _, o := range catalogue.GetObservers() {
		b := records[o.Name]
		switch {
		case o.Retired:
			pause = min(pause, w.pause(w.remove(ctx, o)))
		case wire.BackfillRuns(b):
			pause = min(pause, w.pause(w.fill(ctx, o, b)))
		}
	}
	return pause
}

func (w *worker) failed(ctx context.Context, what string, err error) time.Duration {
	if ctx.Err() == nil {
		w.cfg.Logger.Warn("backfill: meta could not be asked; trying again", "for", what, "error", err)
	}
	return w.cfg.PaceRetry
}
