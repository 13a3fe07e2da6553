package rpc

import (
	"context"
	"log/slog"
	"time"

	"github.com/percolator-go/percolator/internal/txn"
)

// BatchConfig tunes how the operations for one address are put into messages. Zero fields take the defaults.
type BatchConfig struct {
	MaxMessages int           // most operations in one message; default 1024
	MaxBytes    int           // a message is closed once its operations hold this many bytes; default 4 MiB
	Linger      time.Duration // how long a message waits for company; 0: not at all
	QueueLimit  int           // most unanswered operations; beyond it ErrOverloaded at once; default 16384
}

// ClientConfig tunes Dial.
type ClientConfig struct {
	Insecure                  bool   // clear text; else the three files must be given
	CertFile, KeyFile, CAFile string // PEM
	Batch                     BatchConfig
	Logger                    *slog.Logger
}

// Dial connects.
func Dial(ctx context.Context, addrs []string, cfg ClientConfig) (txn.Transport, error) { panic("") }
