package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// TestMisdirected: an address that is not a node's client address, or is a node of another
// authority, is distinguished from a node that is not up yet, with a remedy.
func TestMisdirected(t *testing.T) {
	plain, secure := insecure.NewCredentials(), credentials.NewTLS(&tls.Config{
		RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13,
	})
	web := httptest.NewServer(nil)
	t.Cleanup(web.Close)
	protected := httptest.NewTLSServer(nil)
	t.Cleanup(protected.Close)
	tlsAddr := serveNothing(t, credentials.NewTLS(&tls.Config{
		Certificates: protected.TLS.Certificates, MinVersion: tls.VersionTLS13,
	}))
	plainAddr := serveNothing(t, plain)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for _, c := range []struct {
		name, addr string
		creds      credentials.TransportCredentials
		why, next  string
	}{
		{"a console", web.Listener.Addr().String(), plain, "HTTP/1", "three ports above it"},
		{"the port for nodes", plainAddr, plain, "for other nodes", "one port below"},
		{"a node with certificates", tlsAddr, plain, "plain-text", "with --certs"},
		{"a node without certificates", plainAddr, secure, "plain text", "with --insecure"},
		{"another authority", tlsAddr, secure, "certificates", "of one authority"},
		{"nobody yet", closed.Addr().String(), plain, "nothing listens", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			contact := NewGRPCContact(c.creds)
			defer func() { _ = contact.Close() }()
			_, err := contact.Hello(ctx, c.addr, &pb.HelloRequest{})
			why, next := misdirected(err)
			if !strings.Contains(why, c.why) || !strings.Contains(next, c.next) ||
				(c.next == "") != (next == "") {
				t.Errorf("%v: %q, %q", err, why, next)
			}
		})
	}
}

// serveNothing is a gRPC server without services.
func serveNothing(t *testing.T, creds credentials.TransportCredentials) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.Creds(creds))
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// TestWaitingSaysWhatIsWrong: for an address at which no node can answer, a node that joins, one
// that founds and one that returns log warnings repeatedly, with pauses.
func TestWaitingSaysWhatIsWrong(t *testing.T) {
	wrong := status.Error(codes.Unimplemented, "unknown service percolator.v1.Membership")
	for name, prepare := range map[string]func(s *testNetwork) *testNode{
		"joins":  func(s *testNetwork) *testNode { return s.build("b", 1, "peer") },
		"founds": func(s *testNetwork) *testNode { return s.build("b", 3, "peer") },
		"comes back": func(s *testNetwork) *testNode {
			h := s.build("b", 1)
			h.start()
			if err := <-h.entered; err != nil {
				t.Error(err)
			}
			h.crash()
			h.join, h.voters = []string{"peer"}, []uint64{1, 2, h.self.Identity().NodeID}
			return h
		},
	} {
		t.Run(name, func(t *testing.T) {
			onTestNetwork(t, 1, func(s *testNetwork) {
				h := prepare(s)
				h.wrong = map[string]error{"peer": wrong}
				h.start()
				<-time.After(time.Hour)
				lines := strings.Count(s.told(), "level=WARN")
				if lines < 60 || lines > 130 || strings.Contains(s.told(), `=""`) ||
					!strings.Contains(s.told(), "addr=peer why=") ||
					!strings.Contains(s.told(), "one port below its peer port") {
					t.Errorf("%d lines in an hour", lines)
				}
			})
		})
	}
}

// TestWaitingForEachOther: nodes that all join, of which none founds a cluster, log a hint at
// --bootstrap-expect, but not while another node may still come up or is about to found one.
func TestWaitingForEachOther(t *testing.T) {
	for name, c := range map[string]struct {
		join   []string
		expect int // of the others
		told   bool
	}{
		"nobody begins":     {[]string{"a", "b", "c"}, 1, true},
		"one may come":      {[]string{"a", "b", "c", "later"}, 1, false},
		"others expect two": {[]string{"a", "b", "c"}, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			onTestNetwork(t, 1, func(s *testNetwork) {
				s.build("a", 1, c.join...).start()
				s.build("b", c.expect, c.join...).start()
				s.build("c", c.expect, c.join...).start()
				<-time.After(time.Minute)
				if told := strings.Contains(s.told(), "--bootstrap-expect N"); told != c.told {
					t.Errorf("told of --bootstrap-expect: %v", told)
				}
			})
		})
	}
}

// TestSlowHandshake: the handshake with a busy or distant node may take longer than the pause
// between two attempts.
func TestSlowHandshake(t *testing.T) {
	protected := httptest.NewTLSServer(nil)
	t.Cleanup(protected.Close)
	ready := make(chan struct{})
	secure := credentials.NewTLS(&tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			<-ready
			return &protected.TLS.Certificates[0], nil
		},
		MinVersion: tls.VersionTLS13,
	})
	roots := x509.NewCertPool()
	roots.AddCert(protected.Certificate())
	contact := NewGRPCContact(credentials.NewTLS(&tls.Config{
		RootCAs: roots, MinVersion: tls.VersionTLS13,
	}))
	t.Cleanup(func() { _ = contact.Close() })
	time.AfterFunc(300*time.Millisecond, func() { close(ready) })
	_, err := contact.Hello(t.Context(), serveNothing(t, secure), &pb.HelloRequest{})
	if status.Code(err) != codes.Unimplemented { // it was reached
		t.Error(err)
	}
}
