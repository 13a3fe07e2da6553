package store

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
)

// badgerLog passes Badger's log lines to slog: information at debug level, the rest as
// warnings, because what matters of them comes back as an error.
type badgerLog struct{ log *slog.Logger }

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
func (l badgerLog) Infof(format string, args ...any) { l.write(slog.LevelDebug, format, args) }

// Debugf implements badger.Logger. Badger calls it several times per commit: dropped.
func (l badgerLog) Debugf(string, ...any) {}
