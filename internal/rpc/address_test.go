package rpc

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/txn"
)

// TestDialsNobody: where there is no node, the error of Dial says what is there instead, with the
// address, and has the prefix "percolator: " once.
func TestDialsNobody(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	for _, c := range []struct{ name, addr, says string }{
		{"nobody", closed.Addr().String(), "nothing listens there"},
		{"a web server", web.Listener.Addr().String(), "answers in HTTP/1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// Unrecognised answers are retried for this long.
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			client, err := Dial(ctx, []string{c.addr}, ClientConfig{
				Insecure: true, DialTimeout: 50 * time.Second,
			})
			if client != nil {
				_ = client.Close()
			}
			if !errors.Is(err, txn.ErrUnavailable) || !strings.Contains(err.Error(), c.addr) ||
				!strings.Contains(err.Error(), c.says) ||
				strings.Count(err.Error(), "percolator: ") != 1 {
				t.Errorf("%v", err)
			}
			if ctx.Err() != nil {
				t.Error("it was tried until the end")
			}
		})
	}
}

// TestDialAwaitsStart: on request, an address without a listener is retried until the end.
func TestDialAwaitsStart(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	began, timeout := time.Now(), 2*allRefusedAfter
	_, err = Dial(t.Context(), []string{closed.Addr().String()},
		ClientConfig{Insecure: true, DialTimeout: timeout, AwaitStart: true})
	if !errors.Is(err, txn.ErrUnavailable) || time.Since(began) < timeout {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

// TestDiagnose: the texts of TLS and gRPC that reveal what is wrong with an address, and whether to
// retry.
func TestDiagnose(t *testing.T) {
	for _, c := range []struct {
		failure, says string
		allRefused    bool
	}{
		{`transport: authentication handshake failed: tls: first record does not look like a TLS ` +
			`handshake`, "speaks plain text", true},
		{`error reading server preface: EOF`, "certificates", false},
		{`tls: failed to verify certificate: x509: certificate is valid for localhost, not n1`,
			"lacks that host", true},
		{`tls: failed to verify certificate: x509: certificate is not valid for any names, but ` +
			`wanted to match n1`, "lacks that host", true},
		{`tls: failed to verify certificate: x509: certificate signed by unknown authority`,
			"the certificates do not match", false}, // the node may get another one
		{`error reading server preface: remote error: tls: bad certificate`, "revoked or not for this use", false},
		{`remote error: tls: certificate required`, "the certificates do not match", false},
		{`error reading server preface: http2: frame too large`, "HTTP/1", true},
		{`the node is starting`, "", false},
	} {
		allRefused, code := Diagnose(c.failure)
		text := ""
		if code != nil {
			text = code.Error()
		}
		if allRefused != c.allRefused || !strings.Contains(text, c.says) || c.says == "" && text != "" {
			t.Errorf("%s: %q, %v", c.failure, text, allRefused)
		}
	}
}

// TestWithPort: an address without a port gets the documented one.
func TestWithPort(t *testing.T) {
	for addr, want := range map[string]string{
		"localhost": "localhost:7800", "n1.example.org": "n1.example.org:7800", "::1": "[::1]:7800",
		"[::1]": "[::1]:7800", "10.0.0.1:1": "10.0.0.1:1", "[::1]:1": "[::1]:1",
		"dns:///n1": "dns:///n1",
	} {
		if got := WithPort(addr); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

// TestCheckAddress: an invalid address is reported at once, not after 10 s.
func TestCheckAddress(t *testing.T) {
	for _, addr := range []string{"localhost", "n1.example.org", "::1", "[::1]", "10.0.0.1:1",
		"[::1]:1", "dns:///n1"} {
		if err := CheckAddress(addr); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{"", ":1", "http://127.0.0.1:7800", "https://n1", "a:b:c", "n1:port",
		"127.0.0.1:70000"} {
		if err := CheckAddress(addr); !errors.Is(err, txn.ErrInvalid) {
			t.Errorf("%q: %v", addr, err)
		}
		if _, err := Dial(t.Context(), []string{addr}, ClientConfig{Insecure: true}); !errors.Is(err,
			txn.ErrInvalid) {
			t.Errorf("%q is dialed: %v", addr, err)
		}
	}
}
