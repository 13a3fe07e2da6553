package inspectcmd

import (
	"fmt"
	"strings"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// How the steps that trace.go has found are shown. It asks nobody.

// chainView lays out the chain of a change that was asked for in a row of the table.
type chainView struct {
	*inspect.Chain
	out   *shell.Printer
	table string
}

// shownWrites is how many written cells a line of the table names.
const shownWrites = 4

// print prints the steps that there are, and then where the chain may have more.
func (t *chainView) print() error {
	if len(t.Steps) == 0 {
		return nil
	}
	asked := false
	list := t.out.Listing("STEP, STATE, STARTED (UTC), AFTER, TOOK, START, COMMIT, DETAILS")
	for _, step := range t.Steps {
		asked = asked || step.Asked
		list.Add(step, t.what(step), step.State, startText(step), timeText(step.AfterMS),
			timeText(step.TookMS), stampText(step.StartTS), stampText(step.CommitTS),
			strings.Join(t.details(step), "; "))
	}
	if err := list.End(); err != nil {
		return err
	}
	out := t.out
	if t.Cut {
		out.NoteCut(t.Limit)
	}
	if t.Deep {
		out.Note("the chain goes on; --depth shows more")
	}
	if t.Wide {
		out.Note("a row has more than a node shows: of it, only what observers are concerned with was followed")
	}
	if t.Old {
		out.Note("some transactions are older than the history that is kept: what they wrote in other rows is not known any more")
	}
	if !asked {
		out.Note("the change that was asked about, of transaction %d, was not reached on the way down",
			t.Asked.StartTS)
	}
	for _, step := range t.Steps {
		if step.State != inspect.Committed && !out.JSON() {
			c := step.On
			out.Note("%s tells what an observer waits for", out.Suggest("why", "",
				shell.Operand{What: "TABLE", Value: c.Table}, shell.Operand{What: "ROW", Value: string(c.Row)},
				shell.Operand{What: "OBSERVER", Value: step.Observer}))
			break
		}
	}
	return nil
}

// what names a step, indented below the one that set it off.
func (t *chainView) what(step *inspect.Step) string {
	text := strings.Repeat("  ", step.Depth) + "transaction"
	if step.Observer != "" {
		text = strings.Repeat("  ", step.Depth) + shell.Printable(step.Observer)
	}
	if step.On != nil {
		text += " on " + t.address(step.On)
	}
	if step.Asked && step.Depth > 0 {
		text += " (asked for)"
	}
	return text
}

// address is a cell's, with its table if that is not the one that was asked about.
func (t *chainView) address(c *inspect.Cell) string {
	text := shell.Shortened(string(c.Row), shell.ValueWidth/2) + "." + shell.Printable(string(c.Column))
	if c.Table != shell.Printable(t.table) {
		text = c.Table + "/" + text
	}
	return text
}

// details are what has no column of its own.
func (t *chainView) details(step *inspect.Step) []string {
	var texts []string
	addf := func(format string, args ...any) {
		texts = append(texts, fmt.Sprintf(format, args...))
	}
	if step.SameAs > 0 {
		addf("shown above, as step %d", step.SameAs)
	}
	var wrote []string
	for i, w := range step.Wrote {
		if i == shownWrites {
			break
		}
		text := t.address(&w.Cell)
		if w.Kind == inspect.KindName(pb.Kind_KIND_DELETE) {
			text += " (deleted)"
		}
		wrote = append(wrote, text)
	}
	if n := len(step.Wrote) - shownWrites; n > 0 {
		least := ""
		if step.More {
			least = "at least "
		}
		wrote = append(wrote, fmt.Sprintf("and %s%d more", least, n))
	}
	if len(wrote) > 0 {
		addf("wrote %s", strings.Join(wrote, ", "))
	}
	if step.Changes > 1 {
		addf("acknowledged %d changes together", step.Changes)
	}
	if step.Replay {
		addf("a replay")
	}
	if step.RolledBack > 0 {
		addf("%d runs rolled back", step.RolledBack)
	}
	if step.ParkedTS != 0 {
		addf("parked at %s", shell.Clock(mvcc.Timestamp(step.ParkedTS)))
	}
	if step.Attempts > 0 {
		addf("%d runs failed, the last with: %s", step.Attempts, firstLine(step.Error))
	}
	return texts
}

// startText is when a step began.
func startText(step *inspect.Step) string {
	if step.StartTS == 0 {
		return "-"
	}
	return shell.Clock(mvcc.Timestamp(step.StartTS))
}

// timeText is a duration that may not be known.
func timeText(ms *int64) string {
	if ms == nil {
		return "-"
	}
	return shell.Span(time.Duration(*ms) * time.Millisecond)
}

// stampText is a timestamp that may not be there.
func stampText(ts uint64) string {
	if ts == 0 {
		return "-"
	}
	return fmt.Sprint(ts)
}
