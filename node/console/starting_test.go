package console

import (
	"context"
	"net/http/httptest"
	"testing"
)

// TestProfilesWhileStarting: before a node has its cluster's policy it serves profiles to its own
// machine only, and only health pages to all others if its flag says so.
func TestProfilesWhileStarting(t *testing.T) {
	const here, away = "127.0.0.1:4000", "10.0.0.7:4000"
	c := New(Config{
		Parts: func() *Parts { return nil }, Ready: func(context.Context) error { return nil },
	})
	for _, try := range []struct {
		path, from    string
		login, closed bool
	}{
		{"/debug/pprof/heap", away, false, true},
		{"/debug/pprof/", away, false, true},
		{"/debug/pprof/heap", here, false, false},
		{"/debug/pprof/heap", here, true, true},
		{"/api/v1/status", away, false, false},
		{"/api/v1/status", away, true, true},
	} {
		c.cfg.Login = try.login
		req := httptest.NewRequestWithContext(t.Context(), "GET", try.path, nil)
		req.RemoteAddr = try.from
		if got := c.Closed(req); got != try.closed {
			t.Errorf("%+v: closed: %v", try, got)
		}
	}
	if _, err := c.Identify(t.Context(), "percolator_any", nil); err == nil {
		t.Error("a user has logged in")
	}
}
