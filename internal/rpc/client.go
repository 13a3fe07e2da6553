package rpc

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
)

// Client is the Transport of a remote process. It uses one address at a time and switches to
// the next when that one fails. Any node serves any request and forwards it to the tablet; once
// the leader of a tablet is known, operations go to it directly (leaders).
//
// Its methods run on the coordinator's goroutines. Each address has a link with its own
// goroutines. The link in use is an atomic index, so a switch affects only later calls.
type Client struct {
	links      []*link
	unaryCalls              // made to the address in use
	current    atomic.Int64 // of links
	leaders    *leaders     // nil until connected, and with ClientConfig.Proxy
	closing    sync.Once
	err        error // from Close

	answerWithin time.Duration // the constant, except in tests
	awaitStart   bool          // ClientConfig.AwaitStart
	proxy        bool          // ClientConfig.Proxy
	cluster      string        // id of the cluster
	dial         func(addr string, opts ...grpc.DialOption) (*grpc.ClientConn, error)
}

var _ txn.Transport = (*Client)(nil)

// Dial connects to the addresses (CheckAddress) and returns a Transport as soon as one has
// answered. It returns an error that wraps txn.ErrUnavailable if ctx or DialTimeout ends first or,
// without AwaitStart, if retrying all addresses has been futile (Diagnose) for allRefusedAfter. A
// node's refusal of the client is returned at once, unless it is for lack of room.
func Dial(ctx context.Context, addrs []string, cfg ClientConfig) (*Client, error) {
	return dial(ctx, addrs, cfg, nil)
}

// dial connects as Dial does. Tests pass additional gRPC options.
func dial(ctx context.Context, addrs []string, cfg ClientConfig,
	opts []grpc.DialOption) (*Client, error) {
	// link needs at least one address.
	if len(addrs) == 0 {
		return nil, txn.Invalid("no address to connect to")
	}
	// Validate the configuration before opening connections.
	for _, addr := range addrs {
		if err := CheckAddress(addr); err != nil {
			return nil, err
		}
	}
	creds, err := cfg.credentials()
	if err != nil {
		return nil, err
	}
	if cfg.DialTimeout <= 0 {
		cfg.DialTimeout = 10 * time.Second
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage),
			grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(connectionWindow),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: keepaliveTime, Timeout: keepaliveTimeout, PermitWithoutStream: true,
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: time.Second,
			},
			MinConnectTimeout: connectTimeout,
		}),
	}, opts...)
	// By default gRPC uses the environment's proxy, which rarely reaches a cluster's
	// addresses.
	if !cfg.Proxy {
		opts = append(opts, grpc.WithNoProxy())
	}
	c := &Client{
		answerWithin: answerWithin, awaitStart: cfg.AwaitStart, proxy: cfg.Proxy,
		dial: func(addr string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
			return grpc.NewClient(addr, append(slices.Clone(opts), more...)...)
		},
	}
	c.unaryCalls = newUnaryCalls(unary{c})
	c.works = cfg.Works
	for _, addr := range addrs {
		addr = WithPort(addr)
		conn, err := grpc.NewClient(addr, opts...)
		if err != nil {
			return nil, errors.Join(txn.Invalid("address %q: %v", addr, err), c.Close())
		}
		c.links = append(c.links, newLink(conn, addr, len(addrs) == 1, cfg))
	}
	if c.cluster, err = c.connectAny(ctx, cfg.DialTimeout); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if !cfg.Proxy {
		c.leaders = newLeaders(cfg, c.cluster, c.dial)
	}
	return c, nil
}

// allRefusedAfter is the time for which Dial retries addresses although that is futile (Diagnose):
// the time that a starting node has to open its listener.
const allRefusedAfter = 700 * time.Millisecond

// connectAny tries the addresses in turn until one answers, and makes its link the one in use. It
// returns the id of the cluster.
func (c *Client) connectAny(ctx context.Context, timeout time.Duration) (cluster string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		var last error
		allRefused := true
		// Each address once; then a pause, which grows.
		for range c.links {
			l := c.link()
			attempt, stop := context.WithTimeout(ctx, connectTimeout)
			answer, err := l.rpc.NodeStatus(attempt, &pb.NodeStatusRequest{})
			stop()
			if err == nil {
				return answer.GetClusterId(), nil
			}
			futile, code := Diagnose(status.Convert(err).Message())
			last = fromStatus(err)
			if code != nil {
				last = txn.Errorf("%w: %w", code, last)
			}
			last = txn.Errorf("%s: %w%s", l.addr, last, proxyNote(l.addr, c.proxy))
			allRefused = allRefused && futile
			// A node has refused: trying the others would only hide the reason. A node without
			// room for another connection may have room later.
			var refusal *txn.ServerError
			if errors.As(last, &refusal) && !refused(last) {
				return "", last
			}
			c.failover(l)
		}
		if allRefused && !c.awaitStart && time.Since(began) > allRefusedAfter || txn.Sleep(ctx, wait) != nil {
			return "", txn.Errorf("%w: no node has answered: %w", txn.ErrUnavailable, last)
		}
	}
}

// link returns the link of the address in use.
func (c *Client) link() *link { return c.links[int(c.current.Load())%len(c.links)] }

// failover switches to the next address if l is still in use: of many concurrent failures only
// the first switches.
func (c *Client) failover(l *link) {
	at := c.current.Load()
	if c.links[int(at)%len(c.links)] == l {
		c.current.CompareAndSwap(at, (at+1)%int64(len(c.links)))
	}
}

// Send sends the operation to the tablet's leader if there is a connection to it, else to the
// address in use, and waits for its answer or the end of ctx. Its errors are those of attempt.
// Only an operation that was surely not sent is sent again, to the address in use: only the
// coordinator knows which operations are idempotent.
func (c *Client) Send(ctx context.Context, _ *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if l := c.leaders.link(req.TabletId); l != nil {
		resp, err := c.attempt(ctx, l, req, true)
		if lost := errors.Is(err, errBroken) || errors.Is(err, txn.ErrClosed); lost || isUnreachable(resp.GetError()) {
			c.leaders.failed(req.TabletId, l, !lost)
			if lost && errors.Is(err, txn.ErrNotSent) && ctx.Err() == nil {
				return c.Send(ctx, nil, req)
			}
		}
		return resp, err
	}
	l := c.link()
	// If there is another address, do not wait for a silent one until ctx ends.
	resp, err := c.attempt(ctx, l, req, len(c.links) > 1)
	if errors.Is(err, errBroken) || isUnreachable(resp.GetError()) {
		c.failover(l)
	}
	return resp, err
}

// attempt sends the operation over the link and, if bounded, waits for the answer for answerWithin
// at most; after that the error wraps errBroken. Its other errors are those of link.send.
func (c *Client) attempt(ctx context.Context, l *link, req *pb.TabletRequest,
	bounded bool) (*pb.TabletResponse, error) {
	attempt := ctx
	if bounded {
		var cancel context.CancelFunc
		attempt, cancel = context.WithTimeout(ctx, c.answerWithin)
		defer cancel()
	}
	resp, leader, err := l.send(attempt, req)
	// The attempt timed out, not the caller's context.
	if err != nil && attempt.Err() != nil && ctx.Err() == nil {
		silent := txn.Errorf("%w: %s has not answered within %v", errBroken, l.addr, c.answerWithin)
		if errors.Is(err, txn.ErrNotSent) {
			silent = txn.Errorf("%w: %w", txn.ErrNotSent, silent)
		}
		err = silent
	}
	if err == nil {
		c.leaders.learn(req.TabletId, leader, l)
	}
	return resp, err
}

// isUnreachable reports whether the error may mean that the node did not reach the node that serves
// the operation. The client should try another node, which may not be partitioned.
func isUnreachable(e *pb.Error) bool {
	switch e.GetCode() {
	case pb.Error_CODE_UNAVAILABLE, pb.Error_CODE_NOT_LEADER, pb.Error_CODE_UNKNOWN:
		return true
	}
	return false
}

// metaTablet is the tablet whose leader runs the oracle.
const metaTablet = 1

// Timestamps requests count timestamps from the oracle. It may return fewer.
func (c *Client) Timestamps(ctx context.Context, count int) (mvcc.Timestamp, int, error) {
	req := &pb.TimestampsRequest{Count: uint32(min(count, maxTimestamps)), Trace: tracing.Sent(ctx)}
	if l := c.leaders.link(metaTablet); l != nil {
		attempt, cancel := context.WithTimeout(ctx, c.answerWithin)
		resp, err := l.rpc.Timestamps(attempt, req)
		cancel()
		if err == nil {
			c.leaders.learn(metaTablet, resp.Leader, l)
			return mvcc.Timestamp(resp.First), int(resp.Count), nil
		}
		// Unused timestamps do no harm: the request is repeated at the address in use.
		if ctx.Err() == nil {
			c.leaders.failed(metaTablet, l, errors.Is(attempt.Err(), context.Canceled))
		}
	}
	l := c.link()
	resp, err := c.rpc.Timestamps(ctx, req)
	if err != nil {
		return 0, 0, err
	}
	c.leaders.learn(metaTablet, resp.Leader, l)
	return mvcc.Timestamp(resp.First), int(resp.Count), nil
}

// AdminConn implements txn.Transport: calls of the service Admin go to the address in
// use.
func (c *Client) AdminConn() grpc.ClientConnInterface { return unary{c} }

// Close ends all streams and connections. Unanswered operations fail. A second call returns
// the result of the first.
func (c *Client) Close() error {
	c.closing.Do(func() {
		var errs []error
		if c.leaders != nil {
			c.leaders.close()
		}
		for _, l := range c.links {
			errs = append(errs, l.close())
		}
		c.err = errors.Join(errs...)
	})
	return c.err
}
