package httpd_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/httpd"
)

// told is a cluster that counts its queries, in total and concurrent.
type told struct {
	status        *pb.ClusterStatusResponse
	fault         error
	asked, atOnce atomic.Int64
	twice         atomic.Bool
}

func (c *told) cluster(context.Context) (*pb.ClusterStatusResponse, []*pb.Table, error) {
	if c.atOnce.Add(1) > 1 {
		c.twice.Store(true)
	}
	defer c.atOnce.Add(-1)
	c.asked.Add(1)
	return c.status, []*pb.Table{{Id: 16, Name: "docs"}}, c.fault
}

// quick opens a server with short limits and intervals.
func quick(t *testing.T, o httpd.Options, limit, every time.Duration) (address string) {
	t.Helper()
	o.Addr, o.Metrics = "127.0.0.1:0", prometheus.NewRegistry()
	s, err := httpd.OpenQuick(o, limit, every)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil { // open streams do not delay it
			t.Errorf("close: %v", err)
		}
	})
	return "http://" + s.Addr()
}

// request sends a request; the caller closes the answer's body.
func request(ctx context.Context, t *testing.T, address string, header http.Header) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// event reads the next event's data.
func event(t *testing.T, r *bufio.Reader) (e struct {
	Status *struct {
		NodeID   uint64           `json:"node_id"`
		Findings []map[string]any `json:"findings"`
	}
	Tables []map[string]any
	Error  string
}) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				t.Fatalf("%v in %s", err, data)
			}
			return e
		}
	}
}

// TestClusterIsAskedOnceForAll: any number of listeners costs the cluster one query at a time, and
// none after they have left. A stream lasts longer than the limit of other answers, and sends an
// error as an event.
func TestClusterIsAskedOnceForAll(t *testing.T) {
	c := &told{status: &pb.ClusterStatusResponse{
		NodeId: 7, Findings: []*pb.Finding{{Text: "<b>"}},
	}}
	const limit = time.Second
	address := quick(t, httpd.Options{Cluster: c.cluster}, limit, 50*time.Millisecond)
	ctx, leave := context.WithTimeout(t.Context(), time.Minute)
	defer leave()
	if n := c.asked.Load(); n != 0 {
		t.Errorf("queried %d times before the first listener", n)
	}
	var streams []*bufio.Reader
	for range 5 {
		resp := request(ctx, t, address+"/api/v1/cluster/stream", nil)
		if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
			t.Fatalf("%s: %s", resp.Status, kind)
		}
		streams = append(streams, bufio.NewReader(resp.Body))
	}
	for began := time.Now(); time.Since(began) < 3*limit; {
		for _, s := range streams {
			e := event(t, s)
			if e.Status == nil || e.Status.NodeID != 7 || len(e.Status.Findings) != 1 ||
				e.Tables[0]["name"] != "docs" || e.Error != "" {
				t.Fatalf("%+v", e)
			}
		}
	}
	if c.twice.Load() {
		t.Error("two queries ran concurrently")
	}
	leave()
	deadline := time.Now().Add(20 * time.Second)
	for quiet, last := 0, c.asked.Load(); quiet < 10; quiet++ { // for ten intervals
		<-time.After(50 * time.Millisecond)
		if now := c.asked.Load(); now != last {
			quiet, last = 0, now
		}
		if time.Now().After(deadline) {
			t.Fatal("it is queried without a listener")
		}
	}
}

// TestClusterFails: the reason for a missing status is sent, in an answer and on a stream.
func TestClusterFails(t *testing.T) {
	c := &told{fault: errors.New("<i>starting</i>")}
	address := quick(t, httpd.Options{Cluster: c.cluster}, time.Minute, 50*time.Millisecond)
	resp := request(t.Context(), t, address+"/api/v1/cluster", nil)
	body, err := io.ReadAll(resp.Body)
	var e struct{ Error string }
	if err = errors.Join(err, json.Unmarshal(body, &e)); err != nil ||
		resp.StatusCode != http.StatusServiceUnavailable || e.Error != "<i>starting</i>" ||
		resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s: %s, %v", resp.Status, body, err)
	}
	stream := request(t.Context(), t, address+"/api/v1/cluster/stream", nil)
	if e := event(t, bufio.NewReader(stream.Body)); e.Error != "<i>starting</i>" || e.Status != nil {
		t.Errorf("%+v", e)
	}
}

// TestListenersAreBounded: one beyond the bound is refused with a remedy; probes are still
// answered.
func TestListenersAreBounded(t *testing.T) {
	c := &told{status: &pb.ClusterStatusResponse{}}
	address := quick(t, httpd.Options{Cluster: c.cluster}, time.Minute, time.Hour)
	for range httpd.MaxListeners {
		resp := request(t.Context(), t, address+"/api/v1/cluster/stream", nil)
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
	}
	resp := request(t.Context(), t, address+"/api/v1/cluster/stream", nil)
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" ||
		!strings.Contains(string(body), "ask another node") {
		t.Errorf("one too many: %s %s", resp.Status, body)
	}
	if resp := request(t.Context(), t, address+"/livez", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("/livez beside them: %s", resp.Status)
	}
}

// TestOtherSites: a browser's request on another site's behalf is refused before the cluster is
// queried; a link from elsewhere, or the console itself, is not.
func TestOtherSites(t *testing.T) {
	c := &told{status: &pb.ClusterStatusResponse{}}
	address := quick(t, httpd.Options{Cluster: c.cluster}, time.Minute, time.Hour)
	for _, site := range []string{"cross-site", "same-site", "none", "same-origin"} {
		want := http.StatusOK
		if site == "cross-site" || site == "same-site" {
			want = http.StatusForbidden
		}
		for _, path := range []string{"/api/v1/cluster", "/api/v1/cluster/stream"} {
			resp := request(t.Context(), t, address+path, http.Header{"Sec-Fetch-Site": {site}})
			if resp.StatusCode != want {
				t.Errorf("%s from %s: %s", path, site, resp.Status)
			}
		}
		if want == http.StatusForbidden && c.asked.Load() > 0 {
			t.Errorf("asked for %s", site)
		}
	}
}

// TestConsoleFiles: the console consists of the files in its folder; no path leaves it.
func TestConsoleFiles(t *testing.T) {
	h := handler(false)
	for path, begins := range map[string]string{
		"/": "<!DOCTYPE html>", "/console/console.js": "//", "/console/console.css": "/*",
		"/console/icon.svg": "<svg",
	} {
		if code, body := ask(t, h, "localhost", path); code != http.StatusOK ||
			!strings.HasPrefix(body, begins) {
			t.Errorf("%s: %d %.40q", path, code, body)
		}
	}
	for _, path := range []string{
		"/console/", "/console/.", "/console/none.js", "/console/..%2fserver.go",
		"/console/..%2f..%2fhttpd%2fserver.go", "/console/%2e%2e%2fdoc.go", "/console/..%5cdoc.go",
		"/console//etc/passwd", "/console/%2fetc%2fpasswd", "/console/../server.go",
		"/console/console.js%00", "/console/console.js/", "/console/../../../etc/passwd",
	} {
		code, body := ask(t, h, "localhost", path)
		if code == http.StatusOK || strings.Contains(body, "package httpd") ||
			strings.Contains(body, "root:") {
			t.Errorf("%s: %d %.40q", path, code, body)
		}
	}
}
