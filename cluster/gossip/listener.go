package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/percolator-go/percolator/internal/connlimit"
)

// Gossip's port and its limit of connections. The transport is memberlist's, with its own
// goroutines. One goroutine of this package forwards connections; Shutdown joins it.

// Listener is gossip's TCP and UDP port. It is bound before the node knows its cluster,
// because a request to join contains the node's gossip address. The caller owns it until
// Open succeeds; then the Gossip does.
type Listener struct {
	*memberlist.NetTransport
	ip      net.IP
	ctx     context.Context // ends with Close: no more connections are opened or accepted
	cancel  context.CancelFunc
	streams chan net.Conn // incoming connections, for memberlist
	drained chan struct{} // closed when no more connections can arrive
	done    sync.WaitGroup
}

var _ memberlist.NodeAwareTransport = (*Listener)(nil)

// Listen binds host:port. The host is an IP address or a name; empty means all IPv4 addresses of
// the machine. Port 0 means a free port.
func Listen(bind string, logger *slog.Logger) (*Listener, error) {
	ip, port, err := resolve(bind)
	if err != nil {
		return nil, err
	}
	// A port that is free for TCP may be in use for UDP; then try another.
	for try := 0; ; try++ {
		t, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{ip.String()}, BindPort: port,
			Logger: slog.NewLogLogger(newLibraryLog(logger), slog.LevelInfo),
		})
		if err == nil {
			return newListener(t, ip), nil
		}
		// A port that the caller chose cannot be replaced by another.
		if port != 0 || try >= 10 {
			return nil, fmt.Errorf("gossip: listen on %s: %w", bind, err)
		}
	}
}

// newListener returns a Listener over a bound transport, and starts its goroutine.
func newListener(t *memberlist.NetTransport, ip net.IP) *Listener {
	l := &Listener{
		NetTransport: t, ip: ip, drained: make(chan struct{}), streams: make(chan net.Conn),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.done.Go(l.passStreams)
	return l
}

// StreamCh implements memberlist.Transport. It delivers incoming connections, at most
// maxStreams at once.
func (l *Listener) StreamCh() <-chan net.Conn { return l.streams }

// maxStreams limits the connections to the gossip port. Each is one exchange of a few
// milliseconds; memberlist closes them after TCPTimeout (2 s) at the latest.
const maxStreams = 64

// passStreams forwards connections from memberlist's transport, which accepts without
// limit. A connection beyond maxStreams closes the oldest one of the address with the most:
// a member sends its request at once, so members succeed even while a stranger opens as many
// connections as it can. Once ctx has ended it closes new connections, until drained is
// closed.
func (l *Listener) passStreams() {
	limiter := connlimit.New(connlimit.Config{Pending: maxStreams})
	for {
		select {
		case inner := <-l.NetTransport.StreamCh():
			c := limiter.Track(inner)
			select {
			case l.streams <- c:
			case <-l.ctx.Done():
				_ = c.Close()
			}
		case <-l.drained:
			return
		}
	}
}

// Shutdown implements memberlist.Transport. It is called once.
func (l *Listener) Shutdown() error {
	l.cancel()
	err := l.NetTransport.Shutdown()
	// No more connections are accepted, so the goroutine may end.
	close(l.drained)
	l.done.Wait()
	return err
}

// Addr returns the address that was bound.
func (l *Listener) Addr() string {
	return net.JoinHostPort(l.ip.String(), strconv.Itoa(l.GetAutoBindPort()))
}

// Close closes a Listener that no Gossip owns.
func (l *Listener) Close() error {
	// memberlist's goroutines may be blocked on packets that nobody receives.
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-l.PacketCh():
			case <-done:
				return
			}
		}
	}()
	defer close(done)
	return l.Shutdown()
}

// DialTimeout implements memberlist.Transport.
func (l *Listener) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return l.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport. Close aborts it.
func (l *Listener) DialAddressTimeout(a memberlist.Address,
	timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	return d.DialContext(l.ctx, "tcp", a.Addr)
}

// resolve returns the IP address and the port of host:port. Of a name's addresses it prefers
// IPv4. An empty host is 0.0.0.0.
func resolve(addr string) (net.IP, int, error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, 0, fmt.Errorf("gossip: address %q is not of the form host:port", addr)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, 0, fmt.Errorf("gossip: %q is not a port number", text)
	}
	if host == "" {
		return net.IPv4zero, int(port), nil
	}
	if ip := net.ParseIP(host); ip != nil {
		return ip, int(port), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupIP(ctx, "ip", host)
	if err == nil && len(ips) == 0 {
		err = errors.New("the name has no address")
	}
	if err != nil {
		return nil, 0, fmt.Errorf("gossip: look up %s: %w", host, err)
	}
	for _, ip := range ips {
		if ip.To4() != nil {
			return ip, int(port), nil
		}
	}
	return ips[0], int(port), nil
}

// lookupTimeout limits the lookup of a host name.
const lookupTimeout = 5 * time.Second
