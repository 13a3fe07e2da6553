package space_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/percolator-go/percolator/store/space"
)

// TestShortDirectory: a ShortError names the directory whose file system is short. Of /proc nothing is
// ever free.
func TestShortDirectory(t *testing.T) {
	full, dir := "/proc", t.TempDir()
	for _, dirs := range [][]string{{full}, {full, dir}, {dir, full}} {
		disk := space.New(space.Options{Dirs: dirs, MinFreeBytes: 1, Logger: slog.New(slog.DiscardHandler)})
		disk.Look()
		short, ok := errors.AsType[*space.ShortError](disk.WriteBlocked())
		if !ok || short.What != space.Bytes || short.Dir != full || !strings.Contains(short.Error(), full) {
			t.Errorf("%q: %v", dirs, short)
		}
	}
}
