package httpd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/httpd"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/test/browser"
)

// evil is text in names, rows and errors. Each part would set window.pwned if a browser interpreted
// it.
const evil = `<img src=x onerror="window.pwned=1"><script>window.pwned=2</script>` +
	`'"></td><svg onload=window.pwned=3>`

// hostile is a cluster in which every text that somebody chooses is or contains evil.
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
			observer("three", func(o *pb.ObserverState) {
				o.Status.Outside = &pb.OutsideWait{WaitedMs: 61_000, NextMs: 5000, Error: evil}
			}),
			observer("four", func(o *pb.ObserverState) { o.Info.Retired, o.Info.Paused = true, true }),
			observer("five", func(o *pb.ObserverState) {
				o.Parked, o.Backfill = 3, &pb.Backfill{Rows: 77, Error: evil}
			}),
		},
		Jobs: []*pb.Job{{
			Kind: evil, Id: evil, Subject: evil, State: "failed", Detail: evil, Unit: evil, By: evil,
			Done: 3, Total: 12, Bytes: 3 << 30, Records: 1500,
		}},
		Findings: []*pb.Finding{{
			Severity: pb.Severity_SEVERITY_CRITICAL, Kind: evil, Subject: evil, Text: evil, Remedy: evil,
		}},
	}, []*pb.Table{{Id: 16, Name: "docs" + evil}}
}

// hostileAnswers are the answers of a hostile cluster to the queries of the pages.
func hostileAnswers() map[string]httpd.Question {
	cell := func() map[string]any {
		return map[string]any{"table": evil, "row": evil, "class": "data", "column": evil}
	}
	none := map[string]any{"bounds": []int{1}, "counts": []int{0, 0}, "sum": 0}
	some := map[string]any{"bounds": []int{1}, "counts": []int{7, 1500}, "sum": 9000}
	rest := map[string]any{"bounds": []int{1}, "counts": []int{7, 36}, "sum": 9000}
	entry := func(group string, add map[string]any) map[string]any {
		e := map[string]any{
			"column": evil, "class": "data", "group": group, "ts": 1 << 50, "start_ts": 1 << 50,
			"commit_ts": 1<<50 + 1, "kind": "put", "value": evil, "bytes": 9000,
			"worker": map[string]any{"node": 0}, "expiry": 1 << 40, "primary": cell(),
		}
		maps.Copy(e, add)
		return e
	}
	answers := map[string]any{
		"history": map[string]any{
			"every_ms": 10000, "nodes": 2, "silent": []string{evil}, "points": []any{map[string]any{
				"unix_ms": 1e12, "operations_per_s": 1, "operation_p99_ms": 1, "transactions_per_s": 1,
				"transaction_p99_ms": 1, "backlog": 1, "observers": []any{map[string]any{"name": evil,
					"runs_per_s": 3, "failures_per_s": 0.5, "conflicts_per_s": 0, "oldest_ms": 420_000}},
			}},
		},
		"rows": map[string]any{"at_ts": 1 << 50, "more": true, "rows": []any{map[string]any{
			"row": evil, "more": true, "cells": []any{map[string]any{
				"column": evil, "value": evil + "\x1b[31m\u202e", "bytes": 9000, "commit_ts": 1 << 50,
			}},
		}}},
		"row": map[string]any{"at_ts": 1 << 50, "more": true, "entries": []any{
			entry("write", nil), entry("lock", nil), entry("intent", nil),
			entry("notify", map[string]any{"parked_ts": 1 << 50, "attempts": 3, "error": evil}),
			entry("write", map[string]any{"class": "ack"}),
		}},
		"heat": map[string]any{"minutes": []int{28_000_000, 28_000_001}, "silent": []string{evil},
			"ranges": []any{map[string]any{
				"from_table": 16, "from_row": evil, "to_table": 16, "to_row": "z" + evil, "to_end": false,
				"reads": []int{1500, 0}, "writes": []int{0, 7},
			}}},
		"parked": map[string]any{"at_ts": 1 << 50, "more": true, "last": evil, "parked": []any{map[string]any{
			"row": evil, "attempts": 1500, "ts": 1 << 49, "parked_ts": 1 << 49,
			"error": evil + "\n\tat \u202e" + evil,
		}, map[string]any{
			"row": "plain", "attempts": 1, "ts": 1 << 49, "parked_ts": 1 << 49, "error": "",
		}}},
		"contended": map[string]any{"lately_ms": 290_000, "silent": []string{evil}, "rows": []any{map[string]any{
			"table": 16, "row": evil, "conflicts": 1500, "locked": 3, "at_most": 7, "lately": 61234,
		}}},
		"mailboxes": map[string]any{"silent": []string{evil}, "nodes": []any{map[string]any{
			"node_id": 1, "lately_ms": 290_000, "mailboxes": []any{map[string]any{"actor": evil, "queued": 1500, "longest": 1,
				"batches": some, "waits": some, "took": none, "lately": map[string]any{"actor": evil,
					"queued": 1500, "longest": 1, "batches": rest, "waits": none, "took": none}}},
		}}},
		"trace": map[string]any{"notes": []string{evil}, "next": "`" + evil + "` says", "steps": []any{
			map[string]any{
				"step": 1, "depth": 0, "state": "committed", "start_ts": 1 << 50, "commit_ts": 1<<50 + 1,
				"took_ms": 0, "asked": true, "wrote": []any{cell()}, "notes": []string{},
			},
			map[string]any{"step": 2, "parent": 1, "depth": 1, "state": "parked", "observer": evil,
				"on": cell(), "attempts": 3, "notes": []string{"3 runs failed, the last with: " + evil}},
		}},
	}
	questions := map[string]httpd.Question{}
	for name, answer := range answers {
		questions[name] = httpd.Question{Answer: func(_ context.Context, form url.Values) (any, error) {
			if form.Get("table") == "wrong" {
				return nil, fmt.Errorf("%w: %s", httpd.ErrQuestion, evil)
			}
			return answer, nil
		}}
	}
	return questions
}

// TestConsoleInABrowser: names that contain markup are displayed as text, on every page; texts are
// legible in both colour schemes; every link and button can be reached by keyboard, with a visible
// focus.
func TestConsoleInABrowser(t *testing.T) {
	b := browser.Start(t)
	status, tables := hostile()
	acts := &operators{}
	var now atomic.Pointer[pb.ClusterStatusResponse]
	now.Store(status)
	address := quick(t, httpd.Options{
		Cluster: func(context.Context) (*pb.ClusterStatusResponse, []*pb.Table, error) {
			return now.Load(), tables, nil
		},
		Questions: hostileAnswers(), Operators: acts,
	}, time.Minute, 200*time.Millisecond)
	for page, wants := range hostilePages() {
		harmless(t, b, address, page, wants)
		tabsThrough(t, b, page)
	}
	act(t, b, address, acts, &now)
	if own := strings.TrimPrefix(address, "http://"); !slices.Equal(b.Hosts(), []string{own}) {
		t.Errorf("requests went to %q, not to %s alone", b.Hosts(), own)
	}
	seen := slices.DeleteFunc(b.Alarms(), func(alarm string) bool {
		return strings.Contains(alarm, "status of 400") // for the invalid query
	})
	if len(seen) > 0 {
		t.Errorf("the browser complains: %q", seen)
	}
}

// hostilePages are the pages of the console with their content for a hostile cluster.
func hostilePages() map[string][]string {
	return map[string][]string{
		"overview": {"Critical: " + evil, "Remedy: " + evil, "7\u202f500"},
		"nodes": {evil, "silent: " + evil, "javascript:window.pwned",
			"percolator node forget 9007199254740993 --yes"},
		"tablets": {"docs" + evil + "/" + evil, `\xff<img`, "no leader", "3.0 GiB", "(meta)"},
		"observers": {"paused", "waiting for an outside service since ", "next attempt in 5 s: " + evil, "unlinked", "running", "retiring", "77 rows", "t" + evil + "/" + evil,
			"1\u202f500", evil},
		"observers?name=unlinked%20one": {"percolator observer pause 'unlinked one'", "Failures", "0.5/s"},
		"observers?name=five": {"notify replay five --all-parked", "Parked", "3.0/s", "7 min 0 s",
			evil + "\n\tat \\U0000202e" + evil, "next parked"},
		"observers?name=three&after=x": {"first parked", evil},
		"observers?name=none":          {"There is no observer none."},
		"locks": {"past its deadline", evil, "1 min 3", "docs" + evil + "/" + evil, "at most 7", "61\u202f234", "4 min 50 s",
			"Missing: " + evil},
		"internals": {evil, "Raft log"},
		"jobs":      {"3 of 12 " + evil, "3.0 GiB, 1\u202f500 records", "failed"},
		"oracle":    {"No answering node knows the leader of meta", "ahead of the answering node"},
		"cells":     {"docs" + evil, `window.pwned=3>\u001b[31m\U0000202e`, "9\u202f000 bytes", "more columns"},
		"cells?table=docs&row=x": {evil, "reservation", "Parked: " + evil, "ack of " + evil,
			"a run of " + evil},
		"cells?table=wrong":      {"invalid query: " + evil},
		"heat":                   {"docs" + evil + "/" + evil, "1\u202f507", "Not on the map: " + evil},
		"mailboxes":              {evil, "Missing: " + evil, "1\u202f500", "43", "209.3", "4 min 50 s"},
		"mailboxes?since=start":  {"1\u202f507", "6.0"},
		"trace?table=docs&row=x": {evil + " on " + evil + "/" + evil, "3 runs failed, the last with: " + evil},
	}
}

// harmless opens a page and requires that it displays the texts and interprets none of them.
func harmless(t *testing.T, b *browser.Browser, address, page string, wants []string) {
	t.Helper()
	b.Open(address + "/#/" + page)
	name, _, _ := strings.Cut(page, "?")
	b.Await(page, `document.querySelector("#page h2") && document.querySelector(
		"nav [aria-current]").hash === "#/`+name+`"`)
	list, _ := json.Marshal(wants)
	b.Await(page+" with "+string(list),
		fmt.Sprintf(`%s.every((want) => document.body.innerText.includes(want))`, list))
	text := browser.Eval[string](b, `document.body.innerText`)
	if strings.Contains(text, "\u202e") {
		t.Errorf("%s turns text around", page)
	}
	foreign := browser.Eval[int](b, `document.querySelectorAll("img, iframe, style, object, embed, `+
		`main script, [onload], [onerror], a[href^=javascript]").length`)
	if pwned := browser.Eval[bool](b, `window.pwned !== undefined`); pwned || foreign > 0 {
		t.Errorf("%s: a script ran: %v; %d elements came from names", page, pwned, foreign)
	}
	if flaws := append(b.Flaws("hostile-"+name), b.Violations()...); len(flaws) > 0 {
		t.Errorf("%s: %q", page, flaws)
	}
}

// tabsThrough requires that Tab reaches every control of a page, with a visible focus.
func tabsThrough(t *testing.T, b *browser.Browser, page string) {
	t.Helper()
	all := browser.Eval[int](b, `document.querySelectorAll("a[href], button, input, select, [tabindex='0']").length`)
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
	for _, want := range []string{"Nodes#/nodes", "Pause", "metrics/metrics"} {
		if !reached[want] {
			t.Errorf("%s: %s is not reached by Tab, of %d stops: %v", page, want, all, reached)
		}
	}
}

// acting is an operator who uses only the keyboard, in a browser that displays a cluster.
type acting struct {
	*browser.Browser
	t       *testing.T
	address string
	acts    *operators
	now     *atomic.Pointer[pb.ClusterStatusResponse] // status sent to the page
}

// consoleAct is an action offered by a page.
type consoleAct struct {
	page, key, done string
	shows           func(*pb.ClusterStatusResponse) // changes the status to reflect it; nil: any does
}

func consoleActs() []consoleAct {
	return []consoleAct{
		{"observers", "Pause unlinked one", `name:"unlinked one"`, func(s *pb.ClusterStatusResponse) {
			s.Observers[1].Info.Paused = true
		}},
		{"nodes", "Drain node 9007199254740993", "node_id:9007199254740993",
			func(s *pb.ClusterStatusResponse) {
				s.Nodes[2].Node.State = pb.NodeState_NODE_STATE_DRAINING
			}},
		{"observers", "Replay parked five", `name:"five"`, nil},
		{"observers", "Replay every row three", `action:ACTION_START`, func(s *pb.ClusterStatusResponse) {
			s.Jobs = append(s.Jobs, &pb.Job{Kind: "backfill", Id: "three", State: "running"})
		}},
		{"observers?name=five", "Replay all five", `name:"five"`, nil},
		{"observers?name=five", "Replay five, row plain", `row:"plain"`, nil},
	}
}

// act logs in, pauses an observer, drains a node, and logs out, by keyboard alone: nothing is done
// before it is confirmed, and without a login there are no buttons. The page displays an action as
// under way until the cluster's status, now, reflects it.
func act(t *testing.T, b *browser.Browser, address string, acts *operators,
	now *atomic.Pointer[pb.ClusterStatusResponse]) {
	t.Helper()
	x, status := &acting{b, t, address, acts, now}, now.Load()
	b.Open(address + "/#/observers")
	b.Await("observers", `document.body.innerText.includes("unlinked one")`)
	if browser.Eval[int](b, `document.querySelectorAll("main button").length`) > 0 {
		t.Error("there are buttons without a login")
	}
	b.Open(address + "/#/login")
	b.Await("the form", `document.querySelector("input[type=password]")`)
	x.reach("token")
	b.Press("good" + browser.Enter)
	b.Await("who it is", `document.body.innerText.includes("ann, good, by token")`)
	x.flawless("login", "login")
	for _, a := range consoleActs() {
		now.Store(status)
		x.confirm(a)
		x.follow(a, status)
	}
	b.Open(address + "/#/login")
	b.Await("who it is", `document.querySelector("[data-key=out]")`)
	x.reach("out")
	b.Press(browser.Enter)
	b.Await("nobody", `document.querySelector("input[type=password]")`)
}

// did returns the executed actions.
func (x *acting) did() []string {
	x.acts.mu.Lock()
	defer x.acts.mu.Unlock()
	return slices.Clone(x.acts.did)
}

// reach presses Tab until an element has the focus.
func (x *acting) reach(key string) {
	x.t.Helper()
	for range 200 {
		x.Tab()
		if browser.Eval[string](x.Browser, `document.activeElement.dataset.key ?? ""`) == key {
			return
		}
	}
	x.t.Fatalf("%q is not reached", key)
}

// flawless requires that the present page has no faults.
func (x *acting) flawless(what, picture string) {
	x.t.Helper()
	if flaws := x.Flaws(picture); len(flaws) > 0 {
		x.t.Errorf("%s: %q", what, flaws)
	}
}

// confirm requests an action, cancels it, and then confirms it.
func (x *acting) confirm(a consoleAct) {
	x.t.Helper()
	before := len(x.did())
	x.Open(x.address + "/#/" + a.page)
	x.Await("the button", fmt.Sprintf(`document.querySelector("[data-key='%s']")`, a.key))
	x.reach(a.key)
	x.Press(browser.Enter)
	x.Await("a question", `document.querySelector("dialog[open]")`)
	x.Press(browser.Escape)
	x.Await("no question", `document.querySelector("dialog") === null`)
	if len(x.did()) != before {
		x.t.Errorf("%s: done without a confirmation: %q", a.key, x.did())
	}
	x.reach(a.key)
	x.Press(browser.Enter)
	x.Await("the question again", `document.querySelector("dialog[open]")`)
	x.Press(browser.Tab + browser.Tab) // Cancel has the focus: on to the other
	x.Await("the other button", `document.activeElement.closest("dialog") !== null`)
	browser.Eval[bool](x.Browser, `document.querySelector("dialog button").focus() === undefined`)
	x.flawless(a.key, "confirm-"+strings.ReplaceAll(a.page, "?", "-"))
	x.Press(browser.Enter)
	x.Await("that it is done", `document.querySelector("dialog").innerText.includes("Done")`)
	if now := x.did(); len(now) != before+1 || !strings.HasPrefix(now[before], "ann ") ||
		!strings.Contains(strings.ReplaceAll(now[before], ": ", ":"), a.done) {
		x.t.Errorf("%s: done %q", a.key, now)
	}
	x.Press(browser.Enter) // Close
	x.Await("the end", `document.querySelector("dialog") === null`)
}

// follow requires that a confirmed action is under way, and cannot be requested again, until the
// status reflects it.
func (x *acting) follow(a consoleAct, status *pb.ClusterStatusResponse) {
	x.t.Helper()
	underWay := fmt.Sprintf(`document.querySelector("[data-key='%s'][aria-disabled=true]")`, a.key)
	if a.shows != nil {
		x.Await("that it is under way", underWay+`?.innerText.includes("pending")`)
		x.flawless(a.key, "under-way-"+a.page)
		x.Await("the focus on it", `document.activeElement === `+underWay)
		x.Press(browser.Enter)
		if browser.Eval[bool](x.Browser, `document.querySelector("dialog") !== null`) {
			x.t.Errorf("%s: it can be asked for again while it is under way", a.key)
		}
		after := proto.CloneOf(status)
		a.shows(after)
		x.now.Store(after)
	}
	x.Await("that the cluster shows it", `!`+underWay)
}
