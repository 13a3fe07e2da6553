package certs_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percolator-go/percolator/internal/certs"
)

const day = 24 * time.Hour

// logged records log lines at a level and above.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

// take returns the lines since the last call.
func (l *logged) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// TestExpiryIsLogged: from a month before its end a certificate is logged daily as a warning, after
// its end as an error, until there is a new one, unless that one also ends soon.
func TestExpiryIsLogged(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		create := func(lifetime time.Duration) {
			must(t, certs.CreateNode, certs.Request{
				Dir: dir, Name: "n1", Hosts: []string{"localhost"}, Lifetime: lifetime,
				Now: time.Now(), Force: true,
			})
		}
		must(t, certs.CreateCA, certs.Request{Dir: dir, Now: time.Now()})
		create(40 * day)
		log := &logged{}
		files, err := certs.Open(certs.NodeSource(dir), log.logger())
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); files.Watch(ctx) }()
		defer func() { end(); <-ended }()
		after := func(d time.Duration) []string {
			<-time.After(d)
			synctest.Wait()
			return log.take()
		}

		if lines := after(9 * day); len(lines) != 0 {
			t.Errorf("31 days before the end: %q", lines)
		}
		if lines := after(3 * day); len(lines) < 2 || len(lines) > 4 ||
			!strings.Contains(lines[0], "level=WARN") ||
			!strings.Contains(lines[0], "node.crt expires on") {
			t.Errorf("UNWARNED: in the three days from 31 before the end: %q", lines)
		}
		if lines := after(20 * day); len(lines) < 19 || len(lines) > 21 {
			t.Errorf("%d lines in twenty days", len(lines))
		}
		after(9 * day)
		if lines := after(day); len(lines) == 0 ||
			!strings.Contains(lines[len(lines)-1], "level=ERROR") ||
			!strings.Contains(lines[len(lines)-1], "node.crt EXPIRED on") {
			t.Errorf("UNWARNED: it has ended: %q", lines)
		}
		create(100 * day)
		after(day) // it is loaded without a notification
		if lines := after(10 * day); len(lines) != 0 {
			t.Errorf("with a new one: %q", lines)
		}
		create(5 * day)
		certs.Forget(files)
		files.Server(certs.Node) // stands for a handshake
		files.Client()
		if lines := log.take(); len(lines) != 1 || !strings.Contains(lines[0], "expires on") {
			t.Errorf("UNWARNED: one was loaded that ends soon: %q", lines)
		}
	})
}

// TestExpiryProblem: the text for each stage.
func TestExpiryProblem(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		left    time.Duration
		says    string
		expired bool
	}{
		{31 * day, "", false},
		{30*day - time.Second, "in 29 days", false},
		{36 * time.Hour, "in 1 day", false},
		{time.Hour, "within a day", false},
		{-time.Second, "EXPIRED on 2026-02-28T23:59:59Z", true},
	} {
		e := certs.Expiry{File: "node.crt", NotAfter: now.Add(tc.left)}
		if p := e.Problem(now); !strings.Contains(p, tc.says) || (p == "") != (tc.says == "") ||
			e.Expired(now) != tc.expired {
			t.Errorf("%v before the end: %q, expired %v", tc.left, p, e.Expired(now))
		}
	}
}

// TestExpiriesOfBoth: the authority's end counts too; of several authorities in the file, that of
// this certificate.
func TestExpiriesOfBoth(t *testing.T) {
	dir := t.TempDir()
	must(t, certs.CreateCA, certs.Request{Dir: dir, Lifetime: 20 * day})
	must(t, certs.CreateNode, certs.Request{
		Dir: dir, Name: "n1", Hosts: []string{"localhost"}, Lifetime: 10 * day,
	})
	all := open(t, certs.NodeSource(dir)).Expiries()
	if len(all) != 2 || all[0].File != certs.NodeCert || all[1].File != certs.CACert ||
		all[0].Problem(time.Now()) == "" || all[1].Problem(time.Now()) == "" {
		t.Errorf("%v", all)
	}
	infos, err := certs.Show(dir, time.Now())
	if err != nil || len(infos) < 2 || infos[0].Warning == "" || infos[1].Warning == "" {
		t.Errorf("%+v, %v", infos, err)
	}
}
