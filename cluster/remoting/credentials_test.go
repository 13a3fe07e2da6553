package remoting

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/certs/certstest"
	"github.com/percolator-go/percolator/internal/wire"
)

// TestRevokedNodesAreCutOff: a connection with a node ends once its certificate is revoked,
// whichever side has opened it, and later data on it is ignored.
func TestRevokedNodesAreCutOff(t *testing.T) {
	for _, listens := range []bool{true, false} {
		dir, stolen := certstest.Folder(t, "elsewhere"), t.TempDir()
		if _, err := certs.CreateNode(certs.Request{
			Dir: stolen, CA: dir, Name: "n2", Hosts: []string{"h"},
		}); err != nil {
			t.Fatal(err)
		}
		ours, theirs := opened(t, dir), opened(t, stolen)
		a, b := connectedPair(t, ours, theirs, listens)
		heard := func() error {
			if err := a.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Fatal(err)
			}
			_, _ = b.Write([]byte{1}) // it fails once a has closed the connection
			_, err := a.Read(make([]byte, 1))
			return err
		}
		if err := heard(); err != nil {
			t.Fatal(err)
		}
		if _, err := certs.Revoke(dir, []string{filepath.Join(stolen, certs.NodeCert)},
			time.Now()); err != nil {
			t.Fatal(err)
		}
		var err error
		for begin := time.Now(); err == nil && time.Since(begin) < 10*time.Second; {
			err = heard()
		}
		if !errors.Is(err, certs.ErrRevoked) {
			t.Errorf("REVOKED-NODE-HEARD: listening %v: %v", listens, err)
		}
		if _, err := a.Write([]byte{1}); !errors.Is(err, certs.ErrRevoked) {
			t.Errorf("REVOKED-NODE-HEARD: it is still told, listening %v: %v", listens, err)
		}
	}
}

// TestRefusedCertificates: the error of a batch says that one end refuses the other's certificate:
// this one, since another authority issued it, or the other one, since it is revoked.
func TestRefusedCertificates(t *testing.T) {
	t.Parallel()
	dir, revoked := certstest.Folder(t, "127.0.0.1"), t.TempDir()
	if _, err := certs.CreateNode(certs.Request{
		Dir: revoked, CA: dir, Name: "n2", Hosts: []string{"127.0.0.1"},
	}); err != nil {
		t.Fatal(err)
	}
	dials := map[string]*certs.Files{
		"another authority": opened(t, certstest.Folder(t, "127.0.0.1")), "revoked": opened(t, revoked),
	}
	if _, err := certs.Revoke(dir, []string{filepath.Join(revoked, certs.NodeCert)}, time.Now()); err != nil {
		t.Fatal(err)
	}
	link := func(files *certs.Files, addr string) *Link {
		l, err := Open(Config{
			Listen: "127.0.0.1:0", Files: files, Resolve: func(uint64) (string, bool) { return addr, true },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	server := link(opened(t, dir), "")
	server.Receive(func(*wire.PeerBatch) { t.Error("a batch has come") })
	for name, files := range dials {
		l, reports := link(files, server.Addr()), make(chan error, 1)
		if err := l.Send(2, numbered(1), func(err error) { reports <- err }); err != nil {
			t.Fatal(err)
		}
		if err := within(t, reports, name); !errors.Is(err, peer.ErrCertificates) || !errors.Is(err, ErrUnreachable) {
			t.Errorf("UNNAMED: %s: %v", name, err)
		}
		if err := l.Send(2, numbered(1), func(error) {}); !errors.Is(err, peer.ErrCertificates) {
			t.Errorf("UNNAMED: %s, in the pause: %v", name, err)
		}
	}
}

func opened(t *testing.T, dir string) *certs.Files {
	t.Helper()
	files, err := certs.Open(certs.NodeSource(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// connectedPair connects two nodes and returns both ends. The first one listens, or the other.
func connectedPair(t *testing.T, first, second *certs.Files, listens bool) (a, b net.Conn) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	server, client := first, second
	if !listens {
		server, client = second, first
	}
	dialled, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := lis.Accept()
	if err != nil {
		t.Fatal(err)
	}
	type shaken struct {
		conn net.Conn
		info credentials.AuthInfo
		err  error
	}
	done := make(chan shaken, 1)
	go func() {
		var s shaken
		s.conn, s.info, s.err = newClientCredentials(client, func(error) {}).ClientHandshake(
			context.Background(), "elsewhere", dialled)
		done <- s
	}()
	served, _, err := newServerCredentials(server, &counts{}).ServerHandshake(accepted)
	called := <-done
	if err != nil || called.err != nil {
		t.Fatal(err, called.err)
	}
	t.Cleanup(func() { _ = served.Close(); _ = called.conn.Close() })
	if listens {
		return served, called.conn
	}
	return called.conn, served
}
