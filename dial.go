package percolator

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
)

// ClientConfig configures Dial. It must set exactly one of Insecure, the certificate files and
// TLS.
type ClientConfig struct {
	// Insecure disables TLS.
	Insecure bool
	// CertFile, KeyFile and CAFile are PEM files: the client's certificate, its key, and the
	// authority that signed the nodes' certificates.
	CertFile, KeyFile, CAFile string
	// TLS is the configuration of every connection, for certificates that are not in files. Dial
	// copies it; if ServerName is empty, the host of each address is verified. To replace a
	// certificate at run time, set GetClientCertificate.
	TLS *tls.Config
	// Proxy connects through the proxy named by HTTPS_PROXY, subject to NO_PROXY. By default
	// connections are direct and both variables are ignored.
	Proxy bool
	// LockTTL is the time for which the locks of this client block other transactions after its
	// death. Defaults to 10 s.
	LockTTL time.Duration
	// Batch configures the batching of operations.
	Batch ClientBatch
	// TracerProvider creates the spans of this client's transactions; nil disables tracing.
	// A transaction without a span in its context starts a trace. The provider's sampler
	// then decides for the whole trace, including the observers that the transaction
	// triggers on nodes with tracing.
	TracerProvider trace.TracerProvider
	// Logger receives what no call can return, such as a write after the end of its
	// transaction. Defaults to slog.Default().
	Logger *slog.Logger
}

// ClientBatch configures how operations for one address are batched into messages. A zero
// field selects its default.
type ClientBatch struct {
	// MaxMessages is the maximum number of operations in one message. Defaults to 1024.
	MaxMessages int
	// MaxBytes is the total size of its operations, in bytes, at which a message is complete.
	// Defaults to 4 MiB; more than 12 MiB means the default.
	MaxBytes int
	// Linger is the time for which a message waits for more operations. Defaults to 0.
	Linger time.Duration
	// QueueLimit is the maximum number of unanswered operations; further ones fail with
	// ErrOverloaded. Defaults to 16384.
	QueueLimit int
}

// Dial connects to a cluster through the first of the addresses that answers; the others
// serve for failover. An address is host or host:port; the port defaults to 7800. Dial
// returns ErrUnavailable after 10 s without an answer, or after 1 s if every address refuses
// connections or belongs to something other than a node. It also returns when ctx ends, and at
// once if a node refuses the client.
func Dial(ctx context.Context, addrs []string, cfg ClientConfig) (*DB, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	tracer := tracing.New(cfg.TracerProvider)
	transport, err := rpc.Dial(ctx, addrs, rpc.ClientConfig{
		Insecure: cfg.Insecure, CertFile: cfg.CertFile, KeyFile: cfg.KeyFile, CAFile: cfg.CAFile,
		TLS:   cfg.TLS,
		Batch: rpc.BatchConfig(cfg.Batch), Logger: cfg.Logger, Proxy: cfg.Proxy, Tracer: tracer,
	})
	if err != nil {
		return nil, txn.MarkRefusal(err)
	}
	db := newDB(txn.NewClient(transport, txn.Config{
		LockTTL: cfg.LockTTL, Logger: cfg.Logger, Tracer: tracer,
	}))
	db.owned = true
	return db, nil
}
