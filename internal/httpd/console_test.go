package httpd_test

import (
	"context"
	"strings"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/httpd"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/test/browser"
)

// evil is what names, rows and errors may hold. Each would set window.pwned, if a browser
// took it for more than text.
const evil = `<img src=x onerror="window.pwned=1"><script>window.pwned=2</script>` +
	`'"></td><svg onload=window.pwned=3>`

// hostile is a cluster in which everything that somebody can name is called so.
func hostile() (*pb.ClusterStatusResponse, []*pb.Table) {
	now := time.Now().UnixMilli()
	lock := uint64(mvcc.TimestampAt(now - 90_000))
	tablet := func(id uint64, table uint32, row string, leader bool) *pb.StatusResponse {
		return &pb.StatusResponse{
			Tablet: &pb.TabletDescriptor{
				TabletId: id, StartTable: table, StartRow: []byte(row), EndTable: 16,
				EndRow: []byte("\xff" + evil), Replicas: []*pb.Replica{{ReplicaId: 1, NodeId: 1}},
			}, Leader: leader, NodeId: 1, Locks: 1500, OldestLockTs: lock, SizeBytes: 3 << 30,
		}
	}
	status := &pb.NodeStatusResponse{
		ClusterId: evil, NodeId: 1, Version: evil, Listen: evil, StartedUnixMs: now - 1000,
		UnixMs: now, Failed: evil, PolicyDiffers: []string{evil},
		Meta: &pb.MetaSight{Error: evil}, History: &pb.HistoryStatus{BlockedBy: evil},
		Placement:    &pb.PlacementStatus{Blocked: []string{evil}},
		Certificates: []*pb.CertificateStatus{{File: evil, Problem: evil}},
		Tablets:      []*pb.StatusResponse{tablet(1, 0, "", true), tablet(2, 16, evil, false)},
	}
	observer := func(name string, change func(*pb.ObserverState)) *pb.ObserverState {
		o := &pb.ObserverState{
			Info:   &pb.ObserverInfo{Name: name, TableName: "t" + evil, Column: []byte(evil)},
			Linked: true, Notifications: 1500, OldestTs: lock,
			Status: &pb.ObserverStatus{Rows: []*pb.ObserverRow{
				{Row: []byte(evil), RunningMs: 9000, Overdue: true},
			}},
		}
		change(o)
		return o
	}
	return &pb.ClusterStatusResponse{
		UnixMs: now, NodeId: 1, NodesUnavailable: evil,
		Nodes: []*pb.NodeReport{
			{Node: &pb.Node{
				NodeId: 1, Alive: true, Listen: evil, Http: "javascript:window.pwned=4",
				Labels: map[string]string{evil: evil}, Version: evil,
			}, Status: status},
			{Node: &pb.Node{NodeId: 2, Alive: true, Http: "db2:7803/" + evil}, Error: evil},
			{Node: &pb.Node{NodeId: 1<<53 + 1, Http: "db3:7803"}},
		},
		Observers: []*pb.ObserverState{
			observer("o"+evil, func(o *pb.ObserverState) { o.Info.Paused = true }),
			observer("unlinked one", func(o *pb.ObserverState) { o.Linked = false }),
			observer("three", func(*pb.ObserverState) {}),
			observer("four", func(o *pb.ObserverState) { o.Info.Retired, o.Info.Paused = true, true }),
			observer("five", func(o *pb.ObserverState) {
				o.Parked, o.Backfill = 3, &pb.Backfill{Rows: 77, Error: evil}
			}),
		},
		Findings: []*pb.Finding{{
			Severity: pb.Severity_SEVERITY_CRITICAL, Kind: evil, Subject: evil, Text: evil, Remedy: evil,
		}},
	}, []*pb.Table{{Id: 16, Name: "docs" + evil}}
}

// TestConsoleInABrowser: what is called like markup is shown as text, on every page; texts
// can be read in both schemes; every link and button can be reached by keyboard, with
// something to see of where one is.
func TestConsoleInABrowser(t *testing.T) {
	b := browser.Start(t)
	status, tables := hostile()
	address := quick(t, httpd.Options{
		Cluster: func(context.Context) (*pb.ClusterStatusResponse, []*pb.Table, error) {
			return status, tables, nil
		},
		Figures: func() httpd.Figures { return httpd.Figures{} },
	}, time.Minute, 200*time.Millisecond)
	for page, wants := range map[string][]string{
		"overview": {"Critical: " + evil, "What to do: " + evil, "7\u202f500"},
		"nodes": {evil, "silent: " + evil, "javascript:window.pwned",
			"percolator node forget 9007199254740993 --yes"},
		"tablets": {"docs" + evil + "/" + evil, `\xff<img`, "no leader", "3.0 GiB", "(meta)"},
		"observers": {"paused", "unlinked", "running", "retiring", "77 rows", "t" + evil + "/" + evil,
			"percolator observer pause 'unlinked one'", "notify replay five --all-parked", "1\u202f500"},
		"locks":     {"past its deadline", evil, "1 min 3"},
		"internals": {evil, "Placement"},
	} {
		b.Open(address + "/#/" + page)
		b.Await(page, `document.querySelector("#page h2") && document.querySelector(
			"nav [aria-current]").hash === "#/`+page+`"`)
		text := browser.Eval[string](b, `document.body.innerText`)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q:\n%s", page, want, text)
			}
		}
		foreign := browser.Eval[int](b, `document.querySelectorAll("img, iframe, style, object, embed, `+
			`main script, [onload], [onerror], a[href^=javascript]").length`)
		if pwned := browser.Eval[bool](b, `window.pwned !== undefined`); pwned || foreign > 0 {
			t.Errorf("%s: a script ran: %v; %d elements came from names", page, pwned, foreign)
		}
		for _, scheme := range []string{"light", "dark"} {
			b.Scheme(scheme)
			if faint := b.Faint(4.5); len(faint) > 0 {
				t.Errorf("%s, %s: hard to read: %q", page, scheme, faint)
			}
		}
		if wide := browser.Eval[int](b, `document.documentElement.scrollWidth - innerWidth`); wide > 0 {
			t.Errorf("%s is %d pixels wider than a laptop's screen", page, wide)
		}
		all := browser.Eval[int](b, `document.querySelectorAll("a[href], button, [tabindex='0']").length`)
		reached := map[string]bool{}
		for range all + 2 {
			at := b.Tab()
			if at.Text == "" { // the browser's own, between the last and the first
				continue
			}
			if !at.Visible {
				t.Errorf("%s: nothing shows that the focus is on %q", page, at.Text)
			}
			reached[at.Text+at.Href] = true
		}
		for _, want := range []string{"Nodes#/nodes", "Hold", "metrics/metrics"} {
			if !reached[want] {
				t.Errorf("%s: %s is not reached by Tab, of %d stops: %v", page, want, all, reached)
			}
		}
	}
	if seen := b.Alarms(); len(seen) > 0 {
		t.Errorf("the browser complains: %q", seen)
	}
}
