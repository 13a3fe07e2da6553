package percolator

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
)

// ClientConfig tunes Dial. Either Insecure or the files must be given.
type ClientConfig struct {
	// Insecure connects in clear text.
	Insecure bool
	// CertFile and KeyFile are this client's certificate, CAFile the authority that
	// signed the nodes': PEM files.
	CertFile, KeyFile, CAFile string
	// Proxy connects through the proxy that the environment names, by HTTPS_PROXY and NO_PROXY;
	// default: connections are direct, whatever the environment says.
	Proxy bool
	// LockTTL is how long others wait for this client's locks after its death; default 10 s.
	LockTTL time.Duration
	// Batch tunes how operations for one address are put together; zero fields take the defaults.
	Batch ClientBatch
	// TracerProvider makes the spans of this client's transactions; nil: there are none. A
	// transaction without a span in its context is a root: the
	// provider's sampler decides there for all that follows from it, also for the
	// observers that it sets off on nodes that trace.
	TracerProvider trace.TracerProvider
	// Logger takes what cannot be returned to a caller, such as that a write came after
	// its transaction's end; default: slog.Default().
	Logger *slog.Logger
}

// ClientBatch tunes how the operations for one address are put into messages. Zero fields
// take the defaults.
type ClientBatch struct {
	MaxMessages int // most operations in one message; default 1024
	// a message is closed once its operations hold this many bytes; default 4 MiB
	MaxBytes int
	Linger   time.Duration // how long a message waits for company; 0: not at all
	// most unanswered operations; beyond it ErrOverloaded at once; default 16384
	QueueLimit int
}

// Dial connects to a cluster through any of the addresses, host or host:port (7800 unless
// given), and returns when one of them has answered or ctx ends. It gives up with
// ErrUnavailable after ten seconds, or after one if at all of them nothing listens, or
// something that is no node. The rest are used when that one fails.
func Dial(ctx context.Context, addrs []string, cfg ClientConfig) (*DB, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	transport, err := rpc.Dial(ctx, addrs, rpc.ClientConfig{
		Insecure: cfg.Insecure, CertFile: cfg.CertFile, KeyFile: cfg.KeyFile, CAFile: cfg.CAFile,
		Batch: rpc.BatchConfig(cfg.Batch), Logger: cfg.Logger, Proxy: cfg.Proxy,
	})
	if err != nil {
		return nil, err
	}
	db := newDB(txn.NewClient(transport, txn.Config{
		LockTTL: cfg.LockTTL, Logger: cfg.Logger, Tracer: tracing.New(cfg.TracerProvider),
	}))
	db.owned = true
	return db, nil
}
