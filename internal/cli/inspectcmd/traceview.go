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

// How the steps that package inspect has found are shown. Nothing here sends a request.

// chainView lays out the chain of the requested change in a row of the table.
type chainView struct {
	*inspect.Chain
	out   *shell.Printer
	table string
}

// shownWrites is the maximum number of written cells in one line of the table.
const shownWrites = 4

// print prints the steps, and then where the chain may have more.
func (t *chainView) print() error {
	if len(t.Steps) == 0 {
		return nil
	}
	list := t.out.Listing("STEP, STATE, STARTED (UTC), AFTER, TOOK, START, COMMIT, DETAILS")
	for _, step := range t.Steps {
		list.Add(step, t.what(step), step.State, orDash(step.StartTS, inspect.Clock(mvcc.Timestamp(step.StartTS))), timeText(step.AfterMS),
			timeText(step.TookMS), orDash(step.StartTS, fmt.Sprint(step.StartTS)), orDash(step.CommitTS, fmt.Sprint(step.CommitTS)),
			strings.Join(t.details(step), "; "))
	}
	if err := list.End(); err != nil {
		return err
	}
	for _, note := range t.Notes() {
		t.out.Note("%s", note)
	}
	if next := t.Next(t.out.Commands); next != "" && !t.out.JSON() {
		t.out.Note("%s", next)
	}
	return nil
}

// what names a step, indented below the one that set it off.
func (t *chainView) what(step *inspect.Step) string {
	text := strings.Repeat("  ", step.Depth) + "transaction"
	if step.Observer != "" {
		text = strings.Repeat("  ", step.Depth) + inspect.Printable(step.Observer)
	}
	if step.On != nil {
		text += " on " + t.address(step.On)
	}
	if step.Asked && step.Depth > 0 {
		text += " (requested)"
	}
	return text
}

// address returns the cell's address, with its table unless that is the requested one.
func (t *chainView) address(c *inspect.Cell) string {
	text := inspect.Shortened(string(c.Row), inspect.ValueWidth/2) + "." + inspect.Printable(string(c.Column))
	if c.Table != t.table {
		text = c.Table + "/" + text
	}
	return text
}

// details returns what the step has and no other column of the table shows.
func (t *chainView) details(step *inspect.Step) []string {
	var wrote, texts []string
	for _, w := range step.Wrote[:min(len(step.Wrote), shownWrites)] {
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
		texts = append(texts, "wrote "+strings.Join(wrote, ", "))
	}
	for _, note := range step.Notes() {
		texts = append(texts, inspect.FirstLine(note))
	}
	return texts
}

// timeText formats a duration; nil means unknown.
func timeText(ms *int64) string {
	if ms == nil {
		return "-"
	}
	return inspect.Span(time.Duration(*ms) * time.Millisecond)
}

// orDash returns the text of a timestamp, or a dash if that is 0.
func orDash(ts uint64, text string) string {
	if ts == 0 {
		return "-"
	}
	return text
}
