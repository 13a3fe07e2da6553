package gossip

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// This file passes memberlist's log on to the node's. memberlist writes lines on any of
// its goroutines; the mutex guards the count of those left out.

// quiet passes memberlist's log on: faults as warnings, one a second at most, for anyone
// can send garbage to the port; all else for debugging. memberlist writes lines such as
// "[WARN] memberlist: text"; slog.NewLogLogger hands them over.
type quiet struct {
	slog.Handler // the node's

	mu      sync.Mutex
	next    time.Time // when a fault may be told of again
	dropped int       // those that were left out
}

func newQuiet(logger *slog.Logger) slog.Handler {
	return &quiet{Handler: logger.Handler()}
}

const warnEvery = time.Second

// Enabled implements slog.Handler: a line's level is known when it has been read.
func (q *quiet) Enabled(context.Context, slog.Level) bool { return true }

// Handle takes one line.
func (q *quiet) Handle(ctx context.Context, r slog.Record) error {
	text := strings.TrimSpace(r.Message)
	level := slog.LevelDebug
	// Of memberlist's levels only errors are faults; its warnings are part of normal
	// work.
	if kind, rest, ok := strings.Cut(text, "] "); ok && strings.HasPrefix(kind, "[") {
		text = rest
		if kind == "[ERR" {
			level = slog.LevelWarn
		}
	}
	out := slog.NewRecord(r.Time, level, "gossip: "+strings.TrimPrefix(text, "memberlist: "), 0)
	if level == slog.LevelWarn {
		dropped, tell := q.fault(time.Now())
		if !tell {
			return nil
		}
		out.Add("left_out", dropped)
	}
	if !q.Handler.Enabled(ctx, level) {
		return nil
	}
	return q.Handler.Handle(ctx, out)
}

// fault reports whether to tell of one more, and how many were left out before.
func (q *quiet) fault(now time.Time) (dropped int, tell bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now.Before(q.next) {
		q.dropped++
		return 0, false
	}
	dropped, q.dropped, q.next = q.dropped, 0, now.Add(warnEvery)
	return dropped, true
}
