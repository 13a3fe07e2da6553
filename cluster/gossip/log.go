package gossip

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Adapter from memberlist's log to the node's. memberlist writes lines on any of its
// goroutines; the mutex guards the count of dropped lines.

// libraryLog is a slog.Handler for memberlist's lines, such as "[WARN] memberlist: text",
// which slog.NewLogLogger passes to it. Errors become warnings, at most one a second, since
// anyone can send garbage to the port. All other lines get level debug.
type libraryLog struct {
	slog.Handler // the node's

	mu      sync.Mutex
	next    time.Time // when the next warning may be logged
	dropped int       // warnings since the last one logged
}

func newLibraryLog(logger *slog.Logger) slog.Handler {
	return &libraryLog{Handler: logger.Handler()}
}

const warnEvery = time.Second

// Enabled implements slog.Handler. The level of a line is known only to Handle.
func (l *libraryLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler for one line.
func (l *libraryLog) Handle(ctx context.Context, r slog.Record) error {
	text := strings.TrimSpace(r.Message)
	level := slog.LevelDebug
	// memberlist's warnings also occur in normal operation.
	if kind, rest, ok := strings.Cut(text, "] "); ok && strings.HasPrefix(kind, "[") {
		text = rest
		if kind == "[ERR" {
			level = slog.LevelWarn
		}
	}
	out := slog.NewRecord(r.Time, level, "gossip: "+strings.TrimPrefix(text, "memberlist: "), 0)
	if level == slog.LevelWarn {
		dropped, ok := l.admit(time.Now())
		if !ok {
			return nil
		}
		out.Add("left_out", dropped)
	}
	if !l.Handler.Enabled(ctx, level) {
		return nil
	}
	return l.Handler.Handle(ctx, out)
}

// admit reports whether a warning may be logged now, and how many were dropped before it.
func (l *libraryLog) admit(now time.Time) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.next) {
		l.dropped++
		return 0, false
	}
	dropped, l.dropped, l.next = l.dropped, 0, now.Add(warnEvery)
	return dropped, true
}
