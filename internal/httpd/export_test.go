package httpd

import "time"

// Bounds, for tests.
const (
	MaxConnections = maxConnections
	MaxListeners   = maxListeners
	MaxQuestions   = maxQuestions
)

// OpenQuick is Open with a time of its own for everything that takes long.
func OpenQuick(o Options, limit, every time.Duration) (*Server, error) {
	return open(o, timing{read: limit, write: limit, watch: every})
}
