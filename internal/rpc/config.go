package rpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
)

// Limits of the protocol and the configurations of both sides. The constants here and in
// memory.go bound all memory that a client can make the server use.

// Sizes, from the limits of design section 2: the largest operation holds a batch of 8 MiB.
const (
	// MaxOperation is the maximum size of one operation or answer, in bytes: a batch and the
	// protobuf overhead of its cells.
	MaxOperation = 12 << 20
	// maxMessage is the maximum size of one gRPC message, in bytes: one operation of any size,
	// or several up to BatchConfig.MaxBytes.
	maxMessage = MaxOperation + 1<<20
	// maxGetBytes is the size at which an answer to a read of many cells is truncated; the
	// client requests the rest.
	maxGetBytes = 4 << 20

	// streamWindow and connectionWindow are the HTTP/2 flow-control windows, in bytes.
	streamWindow     = 256 << 10
	connectionWindow = 4 << 20
	// maxHeaders is the maximum size of one call's headers, in bytes.
	maxHeaders = 16 << 10
	// maxLocate is the maximum number of tablets in one answer to Locate.
	maxLocate = 1024
	// maxTimestamps is the maximum number of timestamps per request: 1/64 of those of a
	// millisecond. A connection has at most MaxStreams concurrent requests, and so obtains at
	// most those of a quarter of a millisecond.
	maxTimestamps = 1 << 12
)

// Timeouts of connecting, pinging and calls.
const (
	connectTimeout   = 5 * time.Second
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
	// unaryTimeout is the timeout of most unary calls (Client.timeout); the coordinator retries
	// them.
	unaryTimeout = 10 * time.Second
	// verifyTimeout is the timeout of the calls VerifyTablet, RestoreTable and MergeTablets. It is
	// slightly longer than that of the verifying node for its replicas.
	verifyTimeout = 70 * time.Second
	// answerWithin is the timeout of one attempt of an operation, or of a query of tables or
	// tablets, if there are other addresses, and of each request over a direct connection: a
	// stalled node keeps its connections open, and a partitioned one keeps its clients. It is
	// longer than an election.
	answerWithin = 3 * time.Second
)

// BatchConfig configures how operations for one address are batched into messages. Zero fields
// mean the defaults.
type BatchConfig struct {
	MaxMessages int // maximum number of operations per message; default 1024
	// MaxBytes is the maximum size of a message of several operations, in bytes; default 4 MiB,
	// also for values above MaxOperation
	MaxBytes int
	Linger   time.Duration // how long a message waits for further operations; default 0
	// QueueLimit is the maximum number of unanswered operations; beyond it Send fails with
	// ErrOverloaded at once; default 16384
	QueueLimit int
}

func (c BatchConfig) withDefaults() BatchConfig {
	if c.MaxMessages <= 0 {
		c.MaxMessages = 1024
	}
	if c.MaxBytes <= 0 || c.MaxBytes > MaxOperation {
		c.MaxBytes = 4 << 20
	}
	if c.QueueLimit <= 0 {
		c.QueueLimit = 16 << 10
	}
	return c
}

// ClientConfig configures Dial.
type ClientConfig struct {
	Insecure                  bool   // plain text; otherwise the files or TLS are required
	CertFile, KeyFile, CAFile string // PEM; read again for each connection
	TLS                       *tls.Config
	Batch                     BatchConfig
	DialTimeout               time.Duration // until an address has answered; default 10 s
	Logger                    *slog.Logger
	// Proxy connects through the proxy that HTTPS_PROXY and NO_PROXY name for an address.
	// Default false: connections are direct regardless of the environment.
	Proxy bool
	// AwaitStart retries addresses that refuse connections until DialTimeout, for nodes that
	// are starting.
	AwaitStart bool
	// Tracer starts the spans of operations' messages; nil disables tracing.
	Tracer *tracing.Tracer
	// Works marks the operations as those of a worker, which may write acknowledgments if its role
	// is Observer. It also lets Client.WorkerDead query the nodes about other remote clients.
	Works bool
}

// credentials checks the configuration and reads the certificate files.
func (c ClientConfig) credentials() (credentials.TransportCredentials, error) {
	files := c.CertFile != "" || c.KeyFile != "" || c.CAFile != ""
	switch {
	case c.Insecure && (files || c.TLS != nil):
		return nil, txn.Invalid("insecure and certificates are both given")
	case files && c.TLS != nil:
		return nil, txn.Invalid("certificate files and a TLS configuration are both given")
	case c.Insecure:
		return insecure.NewCredentials(), nil
	case c.TLS != nil:
		own := c.TLS.Clone()
		return newClientCredentials(func() *tls.Config { return own }), nil
	}
	if c.CAFile == "" || (c.CertFile == "") != (c.KeyFile == "") {
		return nil, txn.Invalid("give the authority's file, and certificate and key files together, or a TLS configuration, or ask for an " +
			"insecure connection")
	}
	loaded, err := certs.Open(certs.Source{CA: c.CAFile, Cert: c.CertFile, Key: c.KeyFile},
		c.Logger)
	if err != nil {
		return nil, txn.Invalid("%v", err)
	}
	return newFileCredentials(loaded), nil
}

// ServerConfig configures NewServer. Zero fields mean the defaults.
type ServerConfig struct {
	// TLS is the configuration of encrypted connections; nil means plain text. To require
	// client certificates set ClientAuth and ClientCAs, or use certs.Files.
	TLS *tls.Config
	// Policy returns the cluster's policy as last read by the node, and the time of that read. Its
	// grants restrict clients to tables. Nil means no restriction.
	Policy func() (*pb.Policy, time.Time)
	// Revoked reports whether a certificate was revoked after its TLS handshake. The server closes
	// the connection of a revoked certificate at its next call or operation. Nil means no
	// certificate is revoked.
	Revoked func(*x509.Certificate) bool
	// LeaderOf returns the address for clients of the node that leads a tablet; "" if this node
	// leads it, or no leader is known. If it is nil, clients receive no addresses of leaders.
	LeaderOf func(tablet uint64) string
	// Tracer starts the spans of clients' operations; nil disables tracing.
	Tracer *tracing.Tracer
	// LegacyCerts records clients whose certificates have no role; nil means they are only logged.
	LegacyCerts *LegacyCerts
	// Clients lists the server's connections and limits their rates; nil means a private one.
	Clients *Clients
	// Admin implements the Admin service; nil means its calls are refused.
	Admin pb.AdminServer
	// Register adds services for nodes. With TLS their calls require a certificate with the
	// node role.
	Register func(grpc.ServiceRegistrar)
	// MaxInFlight is the maximum number of concurrent operations per stream; default 1024.
	// Beyond it the server stops reading the stream.
	MaxInFlight int
	// MaxStreams is the maximum number of concurrent calls and streams per connection; default
	// 16. gRPC clients queue those beyond it. Each may hold one partial message or unread
	// answer of at most maxMessage.
	MaxStreams uint32
	// MaxConnections is the maximum number of connections that have made a call; default 1024.
	// The first call of a further one is refused as overloaded. In plain text, without
	// authentication, one address may have at most half of them.
	MaxConnections int
	// MaxPending is the maximum number of connections that have made no call, such as those in
	// a handshake; default 512. A further one closes another; see package connlimit.
	MaxPending int
	// MaxIdle is the time after which a connection without a call or stream is closed; 0 means
	// never.
	MaxIdle time.Duration
	// Memory is the approximate maximum memory of all clients' operations and answers, in
	// bytes; default 256 MiB. One connection may use an eighth of it. Beyond it the server
	// stops reading the stream.
	Memory int64
	// WriteTimeout is the time within which a client must read one message of answers (up to 4 MiB,
	// or a single answer) before its connection is closed; default 30 s.
	WriteTimeout time.Duration
	// Latest returns a timestamp that the oracle has allocated: at least ts if the oracle has
	// allocated ts. Requests with timestamps above it are refused. It returns an error if the
	// oracle cannot be queried. Nil means timestamps are not checked.
	Latest func(ctx context.Context, ts mvcc.Timestamp) (mvcc.Timestamp, error)
	// Resolve ends the lock on the cell of the transaction that began at start if it has expired,
	// for clients that may read the cell but not end the lock. live reports whether the
	// transaction is alive. Nil means such clients wait for others to end the lock.
	Resolve func(ctx context.Context, cell mvcc.Cell, start mvcc.Timestamp) (live bool, err error)
	// Work serves the session of a worker until ctx ends, and returns the reason for its end. may
	// reports why the worker may not, or no longer, observe a table. Nil means that the node
	// accepts no workers.
	Work   func(ctx context.Context, s WorkStream, may func(table uint32) error) error
	Logger *slog.Logger

	// keepalive is the idle time after which the server pings a client, keepaliveAnswer the
	// timeout of the ping; tests shorten them.
	keepalive, keepaliveAnswer time.Duration
}

func (c ServerConfig) withDefaults() ServerConfig {
	if c.keepalive <= 0 {
		c.keepalive, c.keepaliveAnswer = keepaliveTime, keepaliveTimeout
	}
	c.LegacyCerts = cmp.Or(c.LegacyCerts, &LegacyCerts{})
	c.Clients = cmp.Or(c.Clients, &Clients{})
	if c.Admin == nil {
		c.Admin = pb.UnimplementedAdminServer{}
	}
	if c.MaxInFlight <= 0 {
		c.MaxInFlight = 1024
	}
	c.MaxStreams = cmp.Or(c.MaxStreams, 16)
	if c.MaxConnections <= 0 {
		c.MaxConnections = 1024
	}
	if c.MaxPending <= 0 {
		c.MaxPending = 512
	}
	if c.Memory <= 0 {
		c.Memory = 256 << 20
	}
	if c.WriteTimeout <= 0 {
		c.WriteTimeout = 30 * time.Second
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}
