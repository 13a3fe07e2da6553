package httpd_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/httpd"
	"github.com/percolator-go/percolator/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// serve opens a server over a node that is ready unless fault says otherwise.
func serve(t *testing.T, status *pb.NodeStatusResponse,
	fault error) (get func(method, path string) (int, http.Header, string)) {
	t.Helper()
	registry := prometheus.NewRegistry()
	count := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "percolator_test_requests_total", Help: "For this test.",
	})
	registry.MustRegister(count)
	count.Add(3)
	s, err := httpd.Open(httpd.Options{
		Addr:    "127.0.0.1:0",
		Status:  func(context.Context) *pb.NodeStatusResponse { return status },
		Ready:   func(context.Context) error { return fault },
		Metrics: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second,
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return func(method, path string) (int, http.Header, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header, string(body)
	}
}

func sample() *pb.NodeStatusResponse {
	return &pb.NodeStatusResponse{
		ClusterId: "c1", NodeId: 7, Version: "v0", Listen: "127.0.0.1:7800",
		Tablets: []*pb.StatusResponse{
			{Tablet: &pb.TabletDescriptor{TabletId: 1, EndTable: 16}, Leader: true},
			{Tablet: &pb.TabletDescriptor{
				TabletId: 2, StartTable: 16, StartRow: []byte("<script>\xff"), EndUnbounded: true,
			}, Leader: true},
		},
		Observers: []*pb.ObserverStatus{
			{Name: "<b>count</b>", Table: "bank", Column: []byte("balance"), Runs: 41},
		},
	}
}

func TestProbes(t *testing.T) {
	get := serve(t, sample(), nil)
	if code, _, body := get("GET", "/livez"); code != 200 || body != "alive\n" {
		t.Errorf("/livez: %d %q", code, body)
	}
	if code, _, body := get("GET", "/readyz"); code != 200 || body != "ready\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}
	get = serve(t, sample(), errors.New("disk is full"))
	if code, _, body := get("GET", "/readyz"); code != 503 ||
		!strings.Contains(body, "disk is full") {
		t.Errorf("/readyz of a node that does not serve: %d %q", code, body)
	}
	if code, _, _ := get("GET", "/livez"); code != 200 {
		t.Errorf("/livez of a node that does not serve: %d", code)
	}
}

func TestStatusIsJSON(t *testing.T) {
	code, header, body := serve(t, sample(), nil)("GET", "/api/v1/status")
	if code != 200 || header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %v", code, header)
	}
	var got struct {
		ClusterID string           `json:"cluster_id"`
		NodeID    uint64           `json:"node_id"`
		Tablets   []map[string]any `json:"tablets"`
		Oracle    *uint64          `json:"oracle_last"`
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if got.ClusterID != "c1" || got.NodeID != 7 || len(got.Tablets) != 2 || got.Oracle == nil {
		t.Errorf("got %+v from %s", got, body)
	}
}

func TestMetrics(t *testing.T) {
	code, _, body := serve(t, sample(), nil)("GET", "/metrics")
	if code != 200 || !strings.Contains(body, "percolator_test_requests_total 3\n") {
		t.Errorf("%d %s", code, body)
	}
}

func TestOnlyLooks(t *testing.T) {
	get := serve(t, sample(), nil)
	for _, tc := range []struct {
		method, path string
		code         int
	}{{"POST", "/", 405}, {"DELETE", "/api/v1/status", 405}, {"GET", "/nothing", 404},
		{"HEAD", "/livez", 200}, {"POST", "/api/v1/cluster", 405},
		{"POST", "/api/v1/cluster/stream", 405}, {"HEAD", "/api/v1/cluster/stream", 405},
		{"POST", "/console/console.js", 405}, {"OPTIONS", "/api/v1/cluster", 405}} {
		if code, header, _ := get(tc.method, tc.path); code != tc.code ||
			header.Get("X-Content-Type-Options") != "nosniff" ||
			!strings.Contains(header.Get("Content-Security-Policy"), "script-src 'self';") ||
			header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s %s: %d, want %d; %v", tc.method, tc.path, code, tc.code, header)
		}
	}
}

func TestAddressInUse(t *testing.T) {
	first, err := httpd.Open(httpd.Options{Addr: "127.0.0.1:0", Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close(t.Context()) }()
	if second, err := httpd.Open(httpd.Options{Addr: first.Addr(),
		Metrics: prometheus.NewRegistry()}); err == nil {
		_ = second.Close(t.Context())
		t.Fatal("the same address was bound twice")
	}
}
