package node

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node/config"
)

// TestUnusedSettingIsLogged: Open logs that Batch.Client has no effect, if and only if it is set.
func TestUnusedSettingIsLogged(t *testing.T) {
	for _, set := range []bool{false, true} {
		var log strings.Builder
		cfg := config.DefaultConfig()
		cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = t.TempDir(), "127.0.0.1:0", "", true
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		cfg.Observers = func(r *percolator.Registry) { r.Use(nil) } // refused before anything is opened
		if set {
			cfg.Batch.Client.MaxMessages = 8
		}
		if _, err := Open(t.Context(), cfg); !errors.Is(err, percolator.ErrInvalid) ||
			strings.Contains(log.String(), "Batch.Client") != set {
			t.Errorf("set %t: %v, log %q", set, err, &log)
		}
	}
}
