package rpc

import (
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
	"github.com/percolator-go/percolator/internal/txn"
)

// This file holds the limits of the protocol and the configurations of both sides.
// Everything a client can make the server hold is bounded by a number here or in
// memory.go.

// Sizes, from the limits of design section 2: the largest operation holds a batch of 8 MiB.
const (
	// MaxOperation bounds one operation or its answer in bytes: a batch, and what
	// protobuf adds to its cells.
	MaxOperation = 12 << 20
	// maxMessage bounds one gRPC message: one operation of any size, or several up to
	// BatchConfig.MaxBytes.
	maxMessage = MaxOperation + 1<<20
	// maxGetBytes is where an answer to a read of many cells is cut off; the client asks
	// for the rest.
	maxGetBytes = 4 << 20

	// streamWindow and connectionWindow are HTTP/2's, in bytes: what may be on its way
	// unread.
	streamWindow     = 256 << 10
	connectionWindow = 4 << 20
	// maxHeaders bounds the headers of one call, in bytes.
	maxHeaders = 16 << 10
	// maxLocate bounds the tablets in one answer to Locate.
	maxLocate = 1024
	// maxTimestamps is the most timestamps one request gets: a 64th of a millisecond's. A
	// connection has at most MaxStreams requests under way, and so asks for at most those
	// of a quarter of a millisecond.
	maxTimestamps = 1 << 12
)

// Times of connections: how long connecting and pinging may take.
const (
	connectTimeout   = 5 * time.Second
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
	// unaryTimeout bounds one call that is not on the stream; the coordinator asks again.
	unaryTimeout = 10 * time.Second
	// verifyTimeout is a little longer than the node that verifies a tablet waits for its replicas.
	verifyTimeout = 70 * time.Second
	// answerWithin bounds one attempt of an operation, and of a question that reads
	// tables or tablets, where there are other addresses: a node that stands still keeps
	// its connections, and one that is cut off from the others keeps its clients. It is
	// longer than an election takes.
	answerWithin = 3 * time.Second
)

// BatchConfig tunes how the operations for one address are put into messages. Zero fields
// take the defaults.
type BatchConfig struct {
	MaxMessages int // most operations in one message; default 1024
	// a message is closed once its operations hold this many bytes; default 4 MiB
	MaxBytes int
	Linger   time.Duration // how long a message waits for company; 0: not at all
	// most unanswered operations; beyond it ErrOverloaded at once; default 16384
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

// ClientConfig tunes Dial.
type ClientConfig struct {
	Insecure                  bool   // clear text; else the files must be given
	CertFile, KeyFile, CAFile string // PEM; later connections use them as they are then
	Batch                     BatchConfig
	DialTimeout               time.Duration // until some address has answered; default 10 s
	Logger                    *slog.Logger
	// Proxy connects through the proxy that HTTPS_PROXY and NO_PROXY name for an address.
	// Without it connections are direct, whatever the environment says.
	Proxy bool
	// AwaitStart has an address where nothing listens tried until DialTimeout, for a node that
	// is being started may take that long to listen.
	AwaitStart bool
}

// credentials checks the configuration and reads the certificate files.
func (c ClientConfig) credentials() (credentials.TransportCredentials, error) {
	files := c.CertFile != "" || c.KeyFile != "" || c.CAFile != ""
	if c.Insecure {
		if files {
			return nil, txn.Invalid("insecure and certificates are both given")
		}
		return insecure.NewCredentials(), nil
	}
	if c.CAFile == "" || (c.CertFile == "") != (c.KeyFile == "") {
		return nil, txn.Invalid("give the authority's file, and certificate and key files together, or ask for an " +
			"insecure connection")
	}
	loaded, err := certs.Open(certs.Source{CA: c.CAFile, Cert: c.CertFile, Key: c.KeyFile},
		c.Logger)
	if err != nil {
		return nil, txn.Invalid("%v", err)
	}
	return newFileCredentials(loaded), nil
}

// ServerConfig tunes NewServer. Zero fields take the defaults.
type ServerConfig struct {
	// TLS serves encrypted; nil serves clear text. To demand client certificates set its
	// ClientAuth and ClientCAs, or take it from certs.Files.
	TLS *tls.Config
	// Policy returns the cluster's policy as the node read it last, and when that was: its
	// grants say which clients may use which tables. nil: all may.
	Policy func() (*pb.Policy, time.Time)
	// Revoked reports whether a certificate that TLS has let in was revoked since; its
	// connection ends with its next call, or operations. nil: none ever is.
	Revoked func(*x509.Certificate) bool
	// LegacyCerts takes note of clients without roles; nil: it is for the log only.
	LegacyCerts *LegacyCerts
	// Clients lists the server's connections and bounds their rates; nil: its own.
	Clients *Clients
	// Admin is the service of operators; nil: its calls are refused.
	Admin pb.AdminServer
	// Register adds services for nodes: with TLS their calls need a certificate with the
	// node's role.
	Register func(grpc.ServiceRegistrar)
	// MaxInFlight is how many operations of one stream are under way at once; default
	// 1024. A client that sends more waits: its stream is not read.
	MaxInFlight int
	// MaxStreams bounds concurrent calls and streams of one connection; default 16. A
	// client of gRPC waits with those beyond it. Each may hold a message that is not
	// whole, or an answer that is not read: maxMessage at most.
	MaxStreams uint32
	// MaxConnections bounds the connections that have made a call; default 1024. The first call
	// of a further one is refused as overloaded. In plain text, where nobody is authenticated,
	// one address has at most half of them.
	MaxConnections int
	// MaxPending bounds the connections that have made no call: that shake hands or are silent.
	// One more closes another, see package connlimit; default 512.
	MaxPending int
	// MaxIdle is how long a connection may be without a call or a stream; 0: for ever.
	MaxIdle time.Duration
	// Memory is how much the operations of all clients and their answers take together, in
	// bytes, about; default 256 MiB. A connection may hold an eighth of it; clients that
	// want more wait: their streams are not read.
	Memory int64
	// WriteTimeout is how long a client may take to read one message of answers, of 4 MiB
	// or of one answer; default 30 s. Then its connection is closed.
	WriteTimeout time.Duration
	// Latest tells whether the oracle has given out a timestamp: then its answer is at
	// least that one, and at most what the oracle has given out by now. Requests with
	// timestamps above the answer are refused. An error: it can't be told now. nil: they
	// are not looked at.
	Latest func(ctx context.Context, ts mvcc.Timestamp) (mvcc.Timestamp, error)
	// Resolve ends the lock on a cell of the transaction that began at start, if there is one
	// and it has expired, for clients that may read the cell but not end the lock. live: the
	// transaction goes on. nil: they wait for others.
	Resolve func(ctx context.Context, cell mvcc.Cell, start mvcc.Timestamp) (live bool, err error)
	Logger  *slog.Logger

	// keepalive is after how much silence a client is asked for a sign of life,
	// keepaliveAnswer how long it may take; tests shorten them.
	keepalive, keepaliveAnswer time.Duration
}

func (c ServerConfig) withDefaults() ServerConfig {
	if c.keepalive <= 0 {
		c.keepalive, c.keepaliveAnswer = keepaliveTime, keepaliveTimeout
	}
	if c.LegacyCerts == nil {
		c.LegacyCerts = &LegacyCerts{}
	}
	if c.Clients == nil {
		c.Clients = &Clients{}
	}
	if c.Admin == nil {
		c.Admin = pb.UnimplementedAdminServer{}
	}
	if c.MaxInFlight <= 0 {
		c.MaxInFlight = 1024
	}
	if c.MaxStreams == 0 {
		c.MaxStreams = 16
	}
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
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
