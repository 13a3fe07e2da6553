package httpd

import (
	"log/slog"
	"net/http"
	"time"
)

// Bounds, for tests.
const (
	MaxListeners = maxListeners
	MaxQuestions = maxQuestions
	MaxLookUps   = maxLookUps
)

// OpenQuick is Open with short limits.
func OpenQuick(o Options, limit, every time.Duration) (*Server, error) {
	return open(o, timing{read: limit, write: limit, watch: every})
}

// Handler serves the paths without a listener.
func Handler(o Options) http.Handler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	watch := newClusterWatch(o, defaultTiming.watch)
	return handler(o, watch)
}
