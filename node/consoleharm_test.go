package node_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/health"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/browser"
)

// logsIn logs in as an operator, with a new token.
func (v visitor) logsIn(ctx context.Context, n *node.Node) {
	v.Helper()
	secret, hash := certs.NewToken()
	if _, err := handle.Client(n.DB()).Admin().CreateToken(ctx, &pb.CreateTokenRequest{
		Name: "ann", Role: string(certs.Operator), TtlMs: 600_000, Hash: hash,
	}); err != nil {
		v.Fatal(err)
	}
	v.goes("login", "Reading needs no login")
	v.reaches("token")
	v.b.Press(secret + browser.Enter)
	v.sees("who it is", "ann, operator, by token")
}

// presses activates a button of a page by keyboard, enters a number into its prompt if there is a
// field for one, and waits until the action is done.
func (v visitor) presses(page, key, number, says string) {
	v.Helper()
	v.b.Open(v.address + "#/" + page)
	v.b.Await("the button "+key, `[...document.querySelectorAll("button")].some(
		(e) => e.dataset.key === `+quoted(key)+`)`)
	v.reaches(key)
	v.b.Press(browser.Enter)
	v.b.Await("a question", `document.querySelector("dialog[open]")`)
	if number == "" {
		browser.Eval[bool](v.b, `document.querySelector("dialog button").focus() === undefined`)
	} else {
		browser.Eval[bool](v.b, `document.querySelector("dialog input").select() === undefined`)
		v.b.Press(number)
	}
	if flaws := v.b.Flaws("confirm-" + page); len(flaws) > 0 {
		v.Errorf("%s: %q", key, flaws)
	}
	v.b.Press(browser.Enter)
	v.b.Await("what came of "+key, `[...document.querySelector("dialog").querySelectorAll(
		"[role=status]")].some((e) => e.className !== "")`)
	said := browser.Eval[string](v.b, `document.querySelector("dialog [role=status]").innerText`)
	if !strings.Contains(said, says) {
		v.Errorf("%s: %s", key, said)
	}
	v.b.Press(browser.Enter)
	v.b.Await("the end", `document.querySelector("dialog") === null`)
}

// seesAll checks every page.
func (v visitor) seesAll(name string) {
	v.Helper()
	for page, text := range consolePages {
		v.goes(page, text)
		v.looks(name + "-" + page)
	}
}

// TestConsoleWhileHarmed: in a browser, while a node's disk is full and another's clock stands
// still: the overview names the fault and the remedy, the pages of nodes and of the oracle show the
// node, every page is legible, and an operator's buttons work.
func TestConsoleWhileHarmed(t *testing.T) {
	b := browser.Start(t)
	ctx := within(t, 2*time.Minute)
	r := three(ctx, t, 1, func(_ int, c *node.Config) {
		c.HTTP, c.Logger = "127.0.0.1:0", slog.New(slog.DiscardHandler)
		c.Observers = func(r *percolator.Registry) {
			r.Strong("copies", percolator.Column{Table: "input", Name: "c"},
				func(context.Context, *percolator.Tx, percolator.Notification) error { return nil })
		}
	})
	r.lead(ctx, cluster.MetaTablet, 0)
	asked := r.nodes[0]
	v := visitor{t, b, "http://" + asked.HTTPAddr() + "/"}
	v.goes("overview", "No problems found.")
	v.logsIn(ctx, asked)

	r.free[2].Store(1)
	v.finds(ctx, health.WritesRefused, "Free space")
	v.goes("nodes", "refuses writes")
	v.seesAll("full")
	v.presses("observers", "Pause copies", "", "Done.")
	v.goes("observers?name=copies", "observer resume copies")
	v.presses("observers", "Resume copies", "", "Done.")
	v.goes("observers?name=copies", "observer limit copies")
	v.presses("observers", "Limit copies", "3", "Done.")
	if s := stateOf(t, asked, "copies"); s.Info.Paused || s.Info.Limit != 3 {
		t.Errorf("after the buttons: %v", s.Info)
	}

	r.halted[1].Store(time.Now().UnixNano())
	v.finds(ctx, health.ClockOff, "Set its clock")
	which := r.nodes[1].Addr()
	v.b.Await("which clock it is", `[...document.querySelectorAll("main li")].some(
		(e) => e.innerText.includes("clock-off") && e.innerText.includes(`+quoted(which)+`))`)
	v.goes("nodes", which)
	v.b.Await("its difference", `[...document.querySelectorAll("main tbody tr")].some((e) => e.innerText
		.includes(`+quoted(which)+`) && e.querySelector("td.critical")?.innerText.startsWith("-"))`)
	v.goes("oracle", "fix time synchronisation")
	v.b.Await("its difference", `document.querySelector("main td.critical")?.innerText.startsWith("-")`)
	v.seesAll("halted")
	drained := r.nodes[2].Addr()
	v.presses("nodes", "Drain "+drained, "", "add a node first")
	r.add()
	v.b.Await("four nodes", `document.querySelectorAll("main tbody tr").length === 4`)
	v.presses("nodes", "Drain "+drained, "", "Done.")
	v.presses("nodes", "Cancel the drain "+drained, "", "Done.")
	v.b.Await("that it is undone", `!document.querySelector("main table").innerText.includes("Cancel the drain")`)

	r.halted[1].Store(0)
	r.free[2].Store(1 << 40)
	v.goes("overview", "No problems found.")
	seen := slices.DeleteFunc(b.Alarms(), func(alarm string) bool {
		return strings.Contains(alarm, "status of 400") // for the refused drain
	})
	if len(seen) > 0 {
		t.Errorf("the browser complains: %q", seen)
	}
	own := strings.TrimSuffix(strings.TrimPrefix(v.address, "http://"), "/")
	if hosts := b.Hosts(); !slices.Equal(hosts, []string{own}) {
		t.Errorf("requests went to %q, not to %s alone", hosts, own)
	}
}
