package rpc

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/txn"
)

// TestProxyOnRequestOnly: HTTPS_PROXY diverts no connection unless Proxy is set, and the error of a
// failed connection names it. The dialing process is a child, since net/http reads the variable
// once.
func TestProxyOnRequestOnly(t *testing.T) {
	if mode := os.Getenv("PROXY_TEST"); mode != "" {
		dialReserved(mode == "asked")
		return
	}
	for _, mode := range []string{"asked", "unasked"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			lis, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = lis.Close() }()
			asked := make(chan string, 64)
			go func() { // ends with the listener
				for {
					conn, err := lis.Accept()
					if err != nil {
						close(asked)
						return
					}
					line := make([]byte, len("CONNECT"))
					_, _ = conn.Read(line)
					_ = conn.Close()
					asked <- string(line)
				}
			}()
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProxyOnRequestOnly$")
			child.Env = append(os.Environ(), "PROXY_TEST="+mode, "HTTPS_PROXY=http://ann:secret@"+lis.Addr().String())
			out, err := child.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			_ = lis.Close()
			first, diverted := <-asked
			says := map[string]string{"asked": "through the proxy ", "unasked": "names the proxy "}[mode]
			if diverted != (mode == "asked") || diverted && first != "CONNECT" {
				t.Errorf("PROXY: the proxy was queried: %v (%q)", diverted, first)
			}
			if text := string(out); !strings.Contains(text, says+lis.Addr().String()) || strings.Contains(text, "secret") {
				t.Errorf("the error is: %s", text)
			}
		})
	}
}

// dialReserved dials an address reserved by RFC 5737, which no host has, and prints the error.
func dialReserved(proxy bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := Dial(ctx, []string{"192.0.2.1:7800"}, ClientConfig{Insecure: true, Proxy: proxy})
	if !errors.Is(err, txn.ErrUnavailable) {
		panic(err)
	}
	_, _ = os.Stdout.WriteString(err.Error() + "\n")
}
