package httpd_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/certs/certstest"
	"github.com/percolator-go/percolator/internal/httpd"
)

// TestProbesSurviveFloods: while requests hold all places, and strangers open connections and send
// half a request, a probe is answered within a second, and so is another address's request once
// there is a place.
func TestProbesSurviveFloods(t *testing.T) {
	for name, dir := range map[string]string{"plain": "", "tls": certstest.Folder(t, "127.0.0.1")} {
		t.Run(name, func(t *testing.T) {
			goOn := make(chan struct{})
			o := httpd.Options{
				Addr: "127.0.0.1:0", MaxPending: 16, MaxRequests: 4, Metrics: prometheus.NewRegistry(),
				Ready: func(context.Context) error { return nil },
				Status: func(ctx context.Context) *pb.NodeStatusResponse {
					select {
					case <-goOn:
					case <-ctx.Done():
					}
					return &pb.NodeStatusResponse{}
				},
			}
			half := []byte("GET /livez HTTP/1.1\r\nHost: x\r\n")
			if dir != "" {
				files, err := certs.Open(certs.NodeSource(dir), nil)
				if err != nil {
					t.Fatal(err)
				}
				o.TLS, half = files.Browsers(certs.AllRoles()...), []byte{22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3}
			}
			s, err := httpd.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close(context.Background()) }()
			probes := newVisitor(t, "127.0.0.1", o.TLS != nil)
			url := probes.scheme + s.Addr()
			answers := make(chan int, 8)
			ask := func(from string) {
				b := newVisitor(t, from, o.TLS != nil)
				go func() { answers <- b.get(url + "/api/v1/status") }() // ends with the server
			}
			// One address gets half of the places.
			for range 3 {
				ask("127.0.0.2")
			}
			if code := <-answers; code != http.StatusServiceUnavailable {
				t.Errorf("PLACES: one address has more than its share: %d", code)
			}
			for range 3 {
				ask("127.0.0.3")
			}
			<-answers
			for range 100 {
				conn, err := net.Dial("tcp", s.Addr())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				_, _ = conn.Write(half) // it may be closed already
			}
			for _, path := range []string{"/livez", "/readyz"} {
				began := time.Now()
				if code := probes.get(url + path); code != http.StatusOK || time.Since(began) > 4*time.Second { // the 100 end after 5 s
					t.Errorf("PROBE-REFUSED: %s: status %d after %v", path, code, time.Since(began))
				}
			}
			close(goOn)
			for range 4 {
				if code := <-answers; code != http.StatusOK {
					t.Errorf("a request that had a place: %d", code)
				}
			}
			if code := probes.get(url + "/api/v1/status"); code != http.StatusOK {
				t.Errorf("places were not released: %d", code)
			}
		})
	}
}

// visitor is an HTTP client with connections from one address.
type visitor struct {
	http.Client
	scheme string
}

func newVisitor(t *testing.T, from string, secure bool) *visitor {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	t.Cleanup(transport.CloseIdleConnections)
	b := &visitor{Client: http.Client{Transport: transport, Timeout: 10 * time.Second}, scheme: "http://"}
	if secure {
		b.scheme = "https://"
	}
	return b
}

// get returns the status of the answer, 0 if there is none.
func (b *visitor) get(url string) int {
	resp, err := b.Get(url)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}
