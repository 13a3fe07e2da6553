package node

import (
	"net"
	"testing"

	"github.com/percolator-go/percolator/cluster/join"
)

// TestAddressStaysBound: a client that connects after the early server has ended and before the
// next one accepts is not refused but waits.
func TestAddressStaysBound(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &joining{listen: l, membership: &join.Membership{}, end: func() {}}
	if err := e.serveEarly(); err != nil {
		t.Fatal(err)
	}
	next, err := e.takeOver()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := next.Close(); err != nil {
			t.Error(err)
		}
		if err := e.close(); err != nil {
			t.Error(err)
		}
	}()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := next.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if got, want := server.RemoteAddr().String(), client.LocalAddr().String(); got != want {
		t.Errorf("the connection of %s was accepted, not that of %s", got, want)
	}
}
