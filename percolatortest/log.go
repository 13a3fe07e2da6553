package percolatortest

import (
	"log/slog"
	"sync"
	"testing"
)

// testLog writes the node's warnings to the test's log, until the test ends.
type testLog struct {
	mu sync.Mutex
	t  testing.TB // nil after the end of the test
}

// Write implements io.Writer; slog calls it once per record.
func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.t != nil {
		l.t.Logf("%s", p[:max(len(p)-1, 0)])
	}
	return len(p), nil
}

func (l *testLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t = nil
}

func (l *testLog) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
