package config_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/node/config"
)

// sound returns a configuration that Validate accepts.
func sound() config.Config {
	cfg := config.DefaultConfig()
	cfg.Dir, cfg.Insecure = "data", true
	return cfg
}

func TestDefaultLacksOnlyDirAndProtection(t *testing.T) {
	cfg := config.DefaultConfig()
	got := fields(cfg.Validate())
	if want := []string{"Dir", "Insecure"}; strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("faults in %q, want %q", got, want)
	}
	cfg = sound()
	if err := cfg.Validate(); err != nil {
		t.Fatalf("a sound configuration: %v", err)
	}
}

// unsound are changes to a sound configuration, each with the field that the error must
// name and, where there is one, its kind.
var unsound = []struct {
	name   string
	change func(*config.Config)
	field  string
	kind   error
}{
	{"no dir", func(c *config.Config) { c.Dir = "" }, "Dir", nil},
	{"dir in memory", func(c *config.Config) { c.Store.InMemory = true }, "Dir", nil},
	{"log in dir", func(c *config.Config) { c.LogDir = c.Dir + "/log" }, "LogDir", nil},
	{"log is dir", func(c *config.Config) { c.LogDir = c.Dir + "/." }, "LogDir", nil},
	{"listen without port", func(c *config.Config) {
		c.Listen, c.HTTP = "127.0.0.1", ""
	}, "Listen", nil},
	{"port out of range", func(c *config.Config) {
		c.Listen, c.HTTP = "127.0.0.1:70000", ""
	}, "Listen", nil},
	{"no third port", func(c *config.Config) { c.Listen = "127.0.0.1:65533" }, "HTTP", nil},
	{"peer is listen", func(c *config.Config) { c.Peer = c.Listen }, "Peer", nil},
	{"gossip is peer", func(c *config.Config) { c.Gossip = "127.0.0.1:7801" }, "Gossip", nil},
	{"gossip without port", func(c *config.Config) { c.Gossip = "127.0.0.1" }, "Gossip", nil},
	{"gossip open to all", func(c *config.Config) {
		c.Gossip = ":7802"
	}, "Gossip", config.ErrUnprotected},
	{"peer open to all", func(c *config.Config) {
		c.Peer = "10.0.0.1:7801"
	}, "Peer", config.ErrUnprotected},
	{"http is listen", func(c *config.Config) { c.HTTP = c.Listen }, "HTTP", nil},
	{"advertised port 0", func(c *config.Config) {
		c.Advertise = "127.0.0.1:0"
	}, "Advertise", nil},
	{"join nothing", func(c *config.Config) {
		c.Join = []string{"127.0.0.1:7900", ""}
	}, "Join", nil},
	{"join port 0", func(c *config.Config) { c.Join = []string{"127.0.0.1:0"} }, "Join", nil},
	{"join two ports", func(c *config.Config) {
		c.Join = []string{"127.0.0.1:7900:7800"}
	}, "Join", nil},
	{"join many", func(c *config.Config) {
		c.Join = slices.Repeat([]string{"a"}, 65)
	}, "Join (count)", nil},
	{"join without gossip", func(c *config.Config) {
		c.Join, c.Gossip = []string{"a"}, ""
	}, "Join", nil},
	{"expect nowhere", func(c *config.Config) { c.Expect = 3 }, "Expect", nil},
	{"expect many", func(c *config.Config) {
		c.Expect, c.Join = 65, []string{"a"}
	}, "Expect", nil},
	{"replicas", func(c *config.Config) { c.Replicas = 2 }, "Replicas", nil},
	{"certs and insecure", func(c *config.Config) { c.Certs = "certs" }, "Certs", nil},
	{"neither", func(c *config.Config) {
		c.Insecure = false
	}, "Insecure", config.ErrUnprotected},
	{"open to all", func(c *config.Config) {
		c.Listen, c.HTTP = ":7800", ""
	}, "Listen", config.ErrUnprotected},
	{"http open to all", func(c *config.Config) {
		c.HTTP = "0.0.0.0:80"
	}, "HTTP", config.ErrUnprotected},
	{"http open to all beside certificates", func(c *config.Config) {
		c.Certs, c.Insecure, c.HTTP = "c", false, "0.0.0.0:80"
	}, "HTTP", config.ErrUnprotected},
	{"a port in an HTTP host", func(c *config.Config) {
		c.HTTPHosts = []string{"db1:80"}
	}, "HTTPHosts", nil},
	{"many HTTP hosts", func(c *config.Config) {
		c.HTTPHosts = slices.Repeat([]string{"a"}, 65)
	}, "HTTPHosts (count)", nil},
	{"profiles without HTTP", func(c *config.Config) {
		c.Pprof, c.HTTP = true, ""
	}, "Pprof", nil},
	{"long label", func(c *config.Config) {
		c.Labels = map[string]string{"zone": strings.Repeat("a", 65)}
	}, "Labels", nil},
	{"history", func(c *config.Config) { c.History = time.Millisecond }, "History", nil},
	{"collection", func(c *config.Config) {
		c.Collection.Interval = -1
	}, "Collection.Interval", nil},
	{"hold", func(c *config.Config) {
		c.Collection.MaxHold = time.Second
	}, "Collection.MaxHold", nil},
	{"splits", func(c *config.Config) { c.Splits.MaxTablets = -1 }, "Splits.MaxTablets", nil},
	{"slow snapshots", func(c *config.Config) {
		c.Snapshots.Rate = 1000
	}, "Snapshots.Rate", nil},
	{"many snapshots", func(c *config.Config) {
		c.Snapshots.AtOnce = 65
	}, "Snapshots.AtOnce", nil},
	{"placement", func(c *config.Config) {
		c.Placement.GoneAfter = -1
	}, "Placement.GoneAfter", nil},
	{"batch", func(c *config.Config) {
		c.Batch.Lockd.MaxBytes = -1
	}, "Batch.Lockd.MaxBytes", nil},
	{"memory", func(c *config.Config) { c.Memory = 64 << 20 }, "Memory", nil},
	{"value", func(c *config.Config) { c.Limits.Value = 6<<20 + 1 }, "Limits.Value", nil},
	{"value above batch", func(c *config.Config) {
		c.Limits.Batch = 1 << 20
	}, "Limits.Batch", nil},
}

func TestValidateNamesTheField(t *testing.T) {
	for _, tc := range unsound {
		t.Run(tc.name, func(t *testing.T) {
			cfg := sound()
			tc.change(&cfg)
			err := cfg.Validate()
			if got := fields(err); len(got) != 1 || got[0] != tc.field {
				t.Fatalf("faults in %q, want only %q: %v", got, tc.field, err)
			}
			if tc.kind != nil && !errors.Is(err, tc.kind) {
				t.Fatalf("%v is not %v", err, tc.kind)
			}
		})
	}
}

func TestValidateReportsAllAtOnce(t *testing.T) {
	cfg := config.DefaultConfig()
	cfg.Listen, cfg.Replicas, cfg.Scanners, cfg.LockTTL = "nowhere", 4, -1, 0
	got := strings.Join(fields(cfg.Validate()), " ")
	if want := "Dir Listen Replicas Insecure Scanners LockTTL"; got != want {
		t.Fatalf("faults in %q, want %q", got, want)
	}
}

// TestClusterIsAccepted: the configuration of a cluster's nodes.
func TestClusterIsAccepted(t *testing.T) {
	cfg := sound()
	cfg.Insecure, cfg.Certs, cfg.Listen = false, "certs", "0.0.0.0:7800"
	cfg.Join, cfg.Expect = []string{"10.0.0.1", "node-b:7900", "::1", "[::1]:7900"}, 3
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(cfg.JoinAddrs(), " "),
		"10.0.0.1:7800 node-b:7900 [::1]:7800 [::1]:7900"; got != want {
		t.Errorf("Join is %s, want %s", got, want)
	}
}

func TestAdvertisedAddr(t *testing.T) {
	for _, tc := range []struct {
		advertise, bound string
		listen           bool
		want             string
	}{
		{"", "127.0.0.1:7800", true, "127.0.0.1:7800"},
		{"a.example:80", "0.0.0.0:7800", true, "a.example:80"},
		{"a.example:80", "0.0.0.0:7802", false, "a.example:7802"},
		{"", "10.0.0.1:7802", false, "10.0.0.1:7802"},
		{"", "nowhere", false, ""},
	} {
		cfg := config.Config{Advertise: tc.advertise}
		if got, err := cfg.AdvertisedAddr(tc.bound, tc.listen); got != tc.want ||
			(err != nil) != (tc.want == "") {
			t.Errorf("%+v: %q, %v", tc, got, err)
		}
	}
	var cfg config.Config
	if got, err := cfg.AdvertisedAddr("[::]:7800", true); err == nil &&
		(strings.HasPrefix(got, "[::]") || config.IsLoopback(got)) {
		t.Errorf("all interfaces are advertised as %s", got)
	}
}

func TestForceLiftsLoopback(t *testing.T) {
	cfg := sound()
	cfg.Listen, cfg.InsecureForce = "0.0.0.0:7800", true
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestAutoPorts(t *testing.T) {
	for _, tc := range []struct{ listen, peer, gossip string }{
		{"127.0.0.1:7800", "127.0.0.1:7801", "127.0.0.1:7802"},
		{"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"},
		{"", "", ""},
	} {
		cfg := config.Config{Listen: tc.listen, Peer: config.AutoPort, Gossip: config.AutoPort}
		if cfg.PeerAddr() != tc.peer || cfg.GossipAddr() != tc.gossip {
			t.Errorf("Listen %q: %q and %q", tc.listen, cfg.PeerAddr(), cfg.GossipAddr())
		}
	}
}

func TestHTTPBesideCertificates(t *testing.T) {
	cfg := sound()
	cfg.Certs, cfg.Insecure, cfg.Listen = "c", false, "10.0.0.1:7800"
	if err := cfg.Validate(); err != nil || cfg.HTTPAddr() != "127.0.0.1:7803" {
		t.Errorf("HTTP at %s, %v, want 127.0.0.1:7803", cfg.HTTPAddr(), err)
	}
	cfg.InsecureHTTP = true
	if err := cfg.Validate(); err != nil || cfg.HTTPAddr() != "10.0.0.1:7803" {
		t.Errorf("HTTP at %s, %v, want 10.0.0.1:7803", cfg.HTTPAddr(), err)
	}
	// A named address that other machines reach needs TLS or InsecureHTTP.
	cfg.InsecureHTTP, cfg.HTTP = false, "10.0.0.1:80"
	if err := cfg.Validate(); !errors.Is(err, config.ErrUnprotected) || !strings.Contains(err.Error(), "--http-tls") {
		t.Errorf("plain text for other machines: %v", err)
	}
	cfg.HTTPTLS = true
	if err := cfg.Validate(); err != nil || cfg.HTTPAddr() != "10.0.0.1:80" {
		t.Errorf("TLS on %s: %v", cfg.HTTPAddr(), err)
	}
	cfg.HTTP = config.AutoHTTP
	if err := cfg.Validate(); err != nil || cfg.HTTPAddr() != "127.0.0.1:7803" {
		t.Errorf("TLS on %s, which nobody named: %v", cfg.HTTPAddr(), err)
	}
}

func TestHTTPAddr(t *testing.T) {
	for _, tc := range []struct{ listen, http, want string }{
		{"127.0.0.1:7800", config.AutoHTTP, "127.0.0.1:7803"},
		{"127.0.0.1:0", config.AutoHTTP, "127.0.0.1:0"},
		{"[::1]:9000", config.AutoHTTP, "[::1]:9003"},
		{"127.0.0.1:7800", "", ""},
		{"127.0.0.1:7800", "127.0.0.1:80", "127.0.0.1:80"},
		{"nowhere", config.AutoHTTP, ""},
	} {
		cfg := config.Config{Listen: tc.listen, HTTP: tc.http}
		if got := cfg.HTTPAddr(); got != tc.want {
			t.Errorf("Listen %q, HTTP %q: %q, want %q", tc.listen, tc.http, got, tc.want)
		}
	}
}

func TestIsLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true,
		":1": false, "0.0.0.0:1": false, "10.0.0.1:1": false, "example.org:1": false,
		"127.0.0.1": false,
	} {
		if got := config.IsLoopback(addr); got != want {
			t.Errorf("IsLoopback(%q) = %v", addr, got)
		}
	}
}

// fields lists the fields of all faults in err, in order.
func fields(err error) []string {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var names []string
	for _, e := range joined.Unwrap() {
		if fault, ok := errors.AsType[*config.Fault](e); ok {
			names = append(names, fault.Field)
		}
	}
	return names
}
