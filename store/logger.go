package store

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/percolator-go/percolator/store/space"
)

// badgerLog passes Badger's log lines to slog: information at debug level, warnings and errors as
// warnings, because Badger also returns the important ones as errors. It drops debug lines.
//
// It recognizes some lines by their formats, to count events and to delay compactions (space.Gate),
// for which Badger has no other interface.
type badgerLog struct {
	log    *slog.Logger
	counts *badgerCounts
	gate   *space.Gate
}

// badgerCounts are the number of finished compactions, and the number of waits of over one second
// of Badger's writer for a compaction.
type badgerCounts struct {
	compactions, stalls atomic.Uint64
	compacted           chan struct{} // receives a token when a compaction has ended
}

// The formats of the lines that are recognized. TestCompactionWaitsForFiles fails if
// Badger changes the last one.
const (
	formatCompacted = "[Compactor: %d] Compaction for level: %d DONE"
	formatStalled   = "L0 was stalled for %s\n"
	// Logged by a compactor that has completed a table's contents and creates its file next.
	formatTable = "[%d] LOG Compact. Added %d keys. Skipped %d keys. Iteration took: %v"
)

func (l badgerLog) write(level slog.Level, format string, args []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, "badger: "+
			strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
}

// Errorf implements badger.Logger.
func (l badgerLog) Errorf(format string, args ...any) {
	l.write(slog.LevelWarn, format, args)
}

// Warningf implements badger.Logger.
func (l badgerLog) Warningf(format string, args ...any) { l.write(slog.LevelWarn, format, args) }

// Infof implements badger.Logger.
func (l badgerLog) Infof(format string, args ...any) {
	if format == formatStalled {
		l.counts.stalls.Add(1)
	}
	l.write(slog.LevelDebug, format, args)
}

// Debugf implements badger.Logger. It logs nothing, because Badger calls it several times per
// commit, and acts on two formats.
func (l badgerLog) Debugf(format string, _ ...any) {
	switch format {
	case formatTable:
		l.gate.Wait()
	case formatCompacted:
		l.counts.compactions.Add(1)
		select {
		case l.counts.compacted <- struct{}{}:
		default: // the last token has not been received
		}
	}
}
