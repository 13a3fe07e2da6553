package config_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/config"
)

// sound is a configuration that Validate accepts.
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

func TestValidateNamesTheField(t *testing.T) {
	cases := []struct {
		name   string
		change func(*config.Config)
		field  string
		kind   error
	}{
		{"no dir", func(c *config.Config) { c.Dir = "" }, "Dir", nil},
		{"dir in memory", func(c *config.Config) { c.Store.InMemory = true }, "Dir", nil},
		{"listen without port", func(c *config.Config) { c.Listen, c.HTTP = "127.0.0.1", "" }, "Listen", nil},
		{"port out of range", func(c *config.Config) { c.Listen, c.HTTP = "127.0.0.1:70000", "" }, "Listen", nil},
		{"no third port", func(c *config.Config) { c.Listen = "127.0.0.1:65534" }, "HTTP", nil},
		{"http is listen", func(c *config.Config) { c.HTTP = c.Listen }, "HTTP", nil},
		{"advertised port 0", func(c *config.Config) { c.Advertise = "127.0.0.1:0" }, "Advertise", nil},
		{"join", func(c *config.Config) { c.Join = []string{"127.0.0.1:7900"} }, "Join", config.ErrUnsupported},
		{"expect", func(c *config.Config) { c.Expect = 3 }, "Expect", config.ErrUnsupported},
		{"replicas", func(c *config.Config) { c.Replicas = 2 }, "Replicas", nil},
		{"certs", func(c *config.Config) { c.Certs = "certs" }, "Certs", config.ErrUnsupported},
		{"neither", func(c *config.Config) { c.Insecure = false }, "Insecure", config.ErrUnprotected},
		{"open to all", func(c *config.Config) { c.Listen, c.HTTP = ":7800", "" }, "Listen", config.ErrUnprotected},
		{"http open to all", func(c *config.Config) { c.HTTP = "0.0.0.0:80" }, "HTTP", config.ErrUnprotected},
		{"long label", func(c *config.Config) { c.Labels = map[string]string{"zone": strings.Repeat("a", 65)} }, "Labels", nil},
		{"history", func(c *config.Config) { c.History = time.Millisecond }, "History", nil},
		{"collection", func(c *config.Config) { c.Collection.Interval = -1 }, "Collection.Interval", nil},
		{"hold", func(c *config.Config) { c.Collection.MaxHold = time.Second }, "Collection.MaxHold", nil},
		{"splits", func(c *config.Config) { c.Splits.MaxTablets = -1 }, "Splits.MaxTablets", nil},
		{"batch", func(c *config.Config) { c.Batch.Lockd.MaxBytes = -1 }, "Batch.Lockd.MaxBytes", nil},
		{"value", func(c *config.Config) { c.Limits.Value = 6<<20 + 1 }, "Limits.Value", nil},
		{"value above batch", func(c *config.Config) { c.Limits.Batch = 1 << 20 }, "Limits.Batch", nil},
	}
	for _, tc := range cases {
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

func TestForceLiftsLoopback(t *testing.T) {
	cfg := sound()
	cfg.Listen, cfg.InsecureForce = "0.0.0.0:7800", true
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
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
		":1": false, "0.0.0.0:1": false, "10.0.0.1:1": false, "example.org:1": false, "127.0.0.1": false,
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
		var fault *config.Fault
		if errors.As(e, &fault) {
			names = append(names, fault.Field)
		}
	}
	return names
}
