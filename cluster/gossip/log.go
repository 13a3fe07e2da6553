package gossip

import (
	"bytes"
	"log/slog"
	"sync"
	"time"
)

// quiet passes memberlist's log on: faults as warnings, one a second at most, for anyone can send garbage to the port; all
// else for debugging.
type quiet struct {
	logger *slog.Logger

	mu      sync.Mutex
	next    time.Time
	dropped int
}

func newQuiet(logger *slog.Logger) *quiet { return &quiet{logger: logger} }

const warnEvery = time.Second

// Write takes one line of the log.
func (q *quiet) Write(line []byte) (int, error) {
	text := bytes.TrimSpace(line)
	fault := bytes.HasPrefix(text, []byte("[ERR]"))
	if open := bytes.IndexByte(text, ']'); open >= 0 && text[0] == '[' {
		text = bytes.TrimSpace(text[open+1:])
	}
	text = bytes.TrimPrefix(text, []byte("memberlist: "))
	if !fault {
		q.logger.Debug("gossip: " + string(text))
		return len(line), nil
	}
	q.mu.Lock()
	now := time.Now()
	tell, dropped := !now.Before(q.next), q.dropped
	if tell {
		q.next, q.dropped = now.Add(warnEvery), 0
	} else {
		q.dropped++
	}
	q.mu.Unlock()
	if tell {
		q.logger.Warn("gossip: "+string(text), "left_out", dropped)
	}
	return len(line), nil
}
