package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/test/browser"
)

// evil is a row, column or value that would set window.pwned if a browser interpreted it.
const evil = `<img src=x onerror="window.pwned=1"><svg onload=window.pwned=2>`

// quoted is a text as JavaScript writes it.
func quoted(text string) string {
	q, _ := json.Marshal(text) // no string fails
	return string(q)
}

// visitor views the console of a node.
type visitor struct {
	*testing.T
	b       *browser.Browser
	address string
}

// sees waits until the page has the text.
func (v visitor) sees(what, text string) {
	v.Helper()
	took := v.b.Await(what, "document.body.innerText.includes("+quoted(text)+")")
	v.Logf("%s: after %v", what, took.Round(10e6))
}

// finds fails unless the overview names the fault and the remedy within 5 s.
func (v visitor) finds(ctx context.Context, kind, remedy string) {
	v.Helper()
	v.b.Open(v.address + "#/overview")
	within5s(ctx, v.T, kind, func() (bool, any) {
		all := browser.Eval[[]string](v.b, `[...document.querySelectorAll("#findings li")].map((e) => e.innerText)`)
		return slices.ContainsFunc(all, func(f string) bool {
			return strings.Contains(f, kind) && strings.Contains(f, remedy)
		}), all
	})
}

// goes opens a page and waits for a text.
func (v visitor) goes(page, text string) {
	v.Helper()
	v.b.Open(v.address + "#/" + page)
	v.sees(page, text)
}

// looks checks the requirements of every page: texts are not interpreted and are legible in both
// colour schemes, and nothing is wider than a laptop's screen.
func (v visitor) looks(name string) {
	v.Helper()
	if browser.Eval[bool](v.b, `window.pwned !== undefined || document.querySelector("main img") !== null`) {
		v.Errorf("%s: a name became markup", name)
	}
	if flaws := v.b.Flaws(name); len(flaws) > 0 {
		v.Errorf("%s: %q", name, flaws)
	}
}

// reaches presses Tab until the element with this key has the focus.
func (v visitor) reaches(key string) {
	v.Helper()
	for range 100 {
		at := v.b.Tab()
		if browser.Eval[bool](v.b, `document.activeElement.dataset.key === `+quoted(key)) {
			if !at.Visible {
				v.Errorf("nothing shows that the focus is on %s", key)
			}
			return
		}
	}
	v.Errorf("%s is not reached by Tab", key)
}

// seesCells views, by keyboard, the rows of a table, one row with its versions, and the row at an
// earlier time.
func (v visitor) seesCells(ctx context.Context, db *percolator.DB) {
	column := percolator.Column{Table: "input", Name: "amount " + evil}
	row := "bob " + evil + "\x00\xff"
	for _, value := range []string{"first", "second " + evil} {
		if err := set(ctx, db, row, column, []byte(value)); err != nil {
			v.Fatal(err)
		}
	}
	v.goes("cells?table=input&prefix=bob", "second <img")
	v.looks("cells")
	v.reaches(`row "bob <img src=x onerror=\x22window.pwned=1\x22><svg onload=window.pwned=2>\x00\xff"`)
	v.b.Press(browser.Enter)
	v.sees("a row", "change 2 of 2")
	v.looks("row")
	v.reaches("change")
	v.b.Press(browser.ArrowLeft)
	v.sees("the slider", "change 1 of 2")
	v.b.Await("the row as it was", `document.querySelector("[data-key='The row at this time']")`+
		`.innerText.includes("first")`)
	v.goes("cells?table=none", `"none"`)
	v.goes(`cells?table=input&prefix=%22x`, "read as a string of Go")
}

// seesTrace views the consequences of a change, from the page of its row.
func (v visitor) seesTrace(ctx context.Context, db *percolator.DB) {
	from := percolator.Column{Table: "input", Name: "from"}
	if err := set(ctx, db, "traced", from, []byte("x")); err != nil {
		v.Fatal(err)
	}
	if err := db.WaitIdle(ctx); err != nil {
		v.Fatal(err)
	}
	v.goes("cells?table=input&row=traced", "a run of copies")
	v.b.Await("the link", `(() => {
		const link = [...document.querySelectorAll("main a")].find((a) => a.innerText === "a transaction")
		return link !== undefined && (link.click(), true)
	})()`)
	v.sees("the chain", "2 steps")
	v.sees("the run", "copies on input/traced.from committed")
	v.looks("trace")
}

// seesLoad views the load of the whole cluster: tablets, mailboxes, the last hour.
func (v visitor) seesLoad() {
	v.goes("heat?table=input", "busiest minute")
	v.b.Await("that something was done", `!document.body.innerText.includes("no operations")`)
	drawn := `(() => {
		const canvas = document.querySelector("canvas")
		return canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((x) => x)
	})()`
	if !browser.Eval[bool](v.b, drawn) {
		v.Error("the map is empty")
	}
	if browser.Eval[bool](v.b, `document.body.innerText.includes("Not on the map")`) {
		v.Error("a node is not on the map")
	}
	v.looks("heat")
	v.goes("mailboxes", "batch sizes")
	for _, actor := range []string{"tablet", "log", "state", "oracle", "lockd"} {
		if n := browser.Eval[int](v.b, `[...document.querySelectorAll("main tbody td")]`+
			`.filter((e) => e.innerText === "`+actor+`").length`); n != 3 {
			v.Errorf("%d nodes tell of their mailboxes of %s", n, actor)
		}
	}
	v.looks("mailboxes")
	v.goes("overview", "Totals of the 3 nodes that answered")
}

// seesContention views a row with refused writes on the page of locks.
func (v visitor) seesContention(ctx context.Context, db *percolator.DB) {
	column := percolator.Column{Table: "workload", Name: "c"}
	slow, err := db.Begin(ctx)
	if err != nil {
		v.Fatal(err)
	}
	slow.Set("contended "+evil, column, []byte("late"))
	if err := set(ctx, db, "contended "+evil, column, []byte("first")); err != nil {
		v.Fatal(err)
	}
	if _, err := slow.Commit(ctx); !errors.Is(err, percolator.ErrConflict) {
		v.Fatalf("the later one: %v", err)
	}
	v.goes("locks", "workload/contended "+evil)
	v.looks("contended")
	v.goes("jobs", "3 replicas of each tablet")
	v.sees("splits", "Tablets larger than 96.0 MiB, or with more than 250\u202f000 operations/s, are split")
	v.looks("jobs")
	v.goes("oracle", "issuing")
	v.looks("oracle")
}
