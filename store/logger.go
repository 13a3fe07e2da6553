package store

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
)

// badgerLog passes Badger's log lines to slog: information at debug level, the rest as
// warnings, because what matters of them comes back as an error.
//
// By the lines' formats it also counts events, and delays compactions (gate), for which Badger
// has no other interface.
type badgerLog struct {
	log    *slog.Logger
	counts *badgerCounts
	gate   *gate
}

// badgerCounts are how often Badger has finished a compaction, and how often its writer has
// waited for one for over a second.
type badgerCounts struct {
	compactions, stalls atomic.Uint64
	compacted           chan struct{} // has room for one; a compaction has ended
}

// The formats of the lines that are recognized. TestCompactionWaitsForFiles fails if
// Badger changes the last one.
const (
	formatCompacted = "[Compactor: %d] Compaction for level: %d DONE"
	formatStalled   = "L0 was stalled for %s\n"
	// Of a compactor that has a table's contents and creates its file next.
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

// Debugf implements badger.Logger. Badger calls it several times per commit: dropped.
func (l badgerLog) Debugf(format string, _ ...any) {
	switch format {
	case formatTable:
		l.gate.wait()
	case formatCompacted:
		l.counts.compactions.Add(1)
		select {
		case l.counts.compacted <- struct{}{}:
		default: // nobody has looked since the last
		}
	}
}
