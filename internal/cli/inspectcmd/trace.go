package inspectcmd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// `trace` shows the chain that package inspect finds.

// TraceCommand returns the command that shows the chain of transactions that led to a change.
func TraceCommand(d *shell.Deps) *cobra.Command {
	t := &inspect.Chain{}
	cmd := &cobra.Command{
		Use:   "trace TABLE ROW [COLUMN]",
		Short: "Show the chain of a change: what wrote it, and which observers ran for it",
		Long: `Show the chain that the newest change of a row or cell (or that as of --at) belongs to: the transaction that began it,
the runs of observers that its writes set off, what those wrote, and so on, with the time of each and the time between
them. Pending runs are shown with their state (waiting, failing, parked) and last error.

It follows what is stored: write records, acknowledgments, notifications, rollbacks of runs that conflicted. What a
transaction wrote is looked for in the row in which it is known to have written, and with --search in all rows of the
named tables, which reads each of them once for every transaction, as scan would. Runs of weak observers acknowledge
nothing: they are shown while they wait. Collected versions are not shown.

With -o json each step is an object; "state" is one of ` + inspect.States + `.`,
		Example: "trace bank bob\n" +
			"trace bank bob balance --at 5m --search totals -o json",
	}
	shell.AddInputArgs(cmd)
	at := shell.AddAt(cmd)
	shell.AddLimit(cmd, &t.Limit, 1, "maximum number of steps")
	cmd.Flags().IntVar(&t.Depth, "depth", 16, "maximum length of a chain of runs, in each direction")
	tables := cmd.Flags().StringArray("search", nil,
		"also look in all rows of this table for what a transaction wrote; repeatable")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if t.Depth < 1 {
			return shell.Usagef(cmd, "--depth %d: give at least 1", t.Depth)
		}
		return d.Conn.Run(cmd, func(ctx context.Context, s *shell.Session) error {
			newest := uint64(math.MaxUint64)
			if *at != "" {
				snapshot, err := s.OpenSnapshot(ctx, *at)
				if err != nil {
					return err
				}
				newest = uint64(snapshot.StartTS())
				if err := snapshot.Close(); err != nil {
					return err
				}
			}
			return trace(ctx, s, t, args[0], *tables, args[1:], newest)
		})
	}
	return d.WithClient(cmd)
}

// trace looks the names up, follows the chain and prints it. path is the row and, if there is
// one, the column.
func trace(ctx context.Context, s *shell.Session, t *inspect.Chain, table string, search, path []string,
	newest uint64) error {
	names, catalogue, err := s.Schema(ctx)
	if err != nil {
		return err
	}
	if t.Table, err = names.Table(table); err != nil {
		return err
	}
	for _, name := range search {
		id, err := names.Table(name)
		if err != nil {
			return err
		}
		t.Search = append(t.Search, id)
	}
	t.Client, t.Names, t.Catalogue = s.Client, names, catalogue
	var column *string
	if len(path) > 1 {
		column = &path[1]
	}
	err = t.Trace(ctx, path[0], column, newest)
	if errors.Is(err, inspect.ErrNoChange) {
		return shell.WithHint(coded.Errorf("",
			"%w: no committed change of row %s matches the request and is still kept",
			shell.ErrNoValue, inspect.Printable(path[0])), inspect.AdviceRows, inspect.Operand{What: "TABLE", Value: table})
	}
	if err != nil {
		return err
	}
	return (&chainView{t, s.Out, table}).print()
}

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
		started, committed := step.StartTS != 0, step.CommitTS != 0
		list.Add(step, t.what(step), step.State,
			shell.OrDash(started, inspect.Clock(mvcc.Timestamp(step.StartTS))),
			timeText(step.AfterMS), timeText(step.TookMS), shell.OrDash(started, fmt.Sprint(step.StartTS)),
			shell.OrDash(committed, fmt.Sprint(step.CommitTS)), strings.Join(t.details(step), "; "))
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
