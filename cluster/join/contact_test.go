package join

import (
	"context"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// TestNodesUseNoProxy: HTTPS_PROXY does not divert the calls by which nodes find each other. The
// calling process is a child, since net/http reads the variable once.
func TestNodesUseNoProxy(t *testing.T) {
	if os.Getenv("PROXY_TEST") != "" {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		// An address reserved by RFC 5737, which no host has.
		_, err := NewGRPCContact(insecure.NewCredentials()).Hello(ctx, "192.0.2.1:7800", &pb.HelloRequest{})
		if err == nil {
			t.Error("somebody has answered")
		}
		return
	}
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 1)
	go func() {
		_, err := proxy.Accept()
		asked <- err
	}()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNodesUseNoProxy$")
	child.Env = append(os.Environ(), "PROXY_TEST=1", "HTTPS_PROXY=http://"+proxy.Addr().String())
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	_ = proxy.Close()
	if <-asked == nil {
		t.Error("PROXY: the call went to the proxy")
	}
}
