package mvcc_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
)

// testTable contains all cells of the scripts.
const testTable = mvcc.FirstUserTable

// TestScripts runs the scripts in testdata, one per rule. `go test -run TestScripts ./internal/mvcc
// -rewrite` rewrites the answers.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := newScript()
		datadriven.RunTest(t, path, s.run)
	})
}

// script is one tablet on which the commands of a file in testdata operate. Cells are written
// row.column, acknowledgments row.@observer.
type script struct {
	t    *testing.T
	td   *datadriven.TestData
	view *mvcctest.MemView
	lim  mvcc.Limits
}

func newScript() *script { return &script{view: mvcctest.NewMemView(), lim: mvcc.DefaultLimits()} }

// run dispatches one command.
func (s *script) run(t *testing.T, td *datadriven.TestData) string {
	s.t, s.td = t, td
	commands := map[string]func() string{
		"reset":        s.reset,
		"observe":      s.observe,
		"limits":       s.limits,
		"bound":        s.bound,
		"prewrite":     s.prewrite,
		"commit":       s.commit,
		"one-phase":    s.onePhase,
		"reserve":      s.reserve,
		"release":      s.release,
		"rollback":     s.rollback,
		"status":       s.status,
		"resolve":      s.resolve,
		"heartbeat":    s.heartbeat,
		"notify":       s.notify,
		"clear-notify": s.clearNotify,
		"fail-notify":  s.failNotify,
		"raw":          s.raw,
		"restore":      s.restore,
		"get":          s.get,
		"scan":         s.scan,
		"reader":       s.reader,
		"collect":      s.collect,
		"watch":        s.watch,
		"retire":       s.retire,
		"drop":         s.drop,
		"print":        s.print,
		"dump":         s.dump,
	}
	command, ok := commands[td.Cmd]
	if !ok {
		td.Fatalf(t, "unknown command %s", td.Cmd)
	}
	return command()
}

// ts returns a timestamp argument; 0 if absent.
func (s *script) ts(key string) mvcc.Timestamp {
	var n uint64
	s.td.MaybeScanArgs(s.t, key, &n)
	return mvcc.Timestamp(n)
}

// number returns an integer argument; 0 if absent.
func (s *script) number(key string) int {
	var n int
	s.td.MaybeScanArgs(s.t, key, &n)
	return n
}

// text returns a string argument; empty if absent.
func (s *script) text(key string) string {
	var text string
	s.td.MaybeScanArgs(s.t, key, &text)
	return text
}

// cells returns a list of cells: key=(a.x,b.y).
func (s *script) cells(key string) []mvcc.Cell {
	var list []mvcc.Cell
	if arg, ok := s.td.Arg(key); ok {
		for _, v := range arg.Vals {
			list = append(list, parseCell(v))
		}
	}
	return list
}

// cell returns one cell.
func (s *script) cell(key string) mvcc.Cell { return parseCell(s.text(key)) }

// parseCell reads row.column; a column that begins with @ is an observer's acknowledgment.
func parseCell(text string) mvcc.Cell {
	row, column, _ := strings.Cut(text, ".")
	c := mvcc.Cell{Table: testTable, Row: row, Column: column}
	if name, ok := strings.CutPrefix(column, "@"); ok {
		c.Class, c.Column = mvcc.ClassAck, name
	}
	return c
}

// show is the inverse of parseCell.
func show(c mvcc.Cell) string {
	if c.Class == mvcc.ClassAck {
		return c.Row + ".@" + c.Column
	}
	return c.Row + "." + c.Column
}

// writes reads the input lines "put cell value", "delete cell", "lock cell" and "notify cell".
func (s *script) writes() (writes []mvcc.CellWriteRequest, notifies []mvcc.Cell) {
	for line := range strings.Lines(s.td.Input) {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		cell, value, _ := strings.Cut(rest, " ")
		switch verb {
		case "put":
			writes = append(writes, mvcc.CellWriteRequest{
				Cell: parseCell(cell), Kind: mvcc.KindPut, Value: []byte(value),
			})
		case "delete":
			writes = append(writes, mvcc.CellWriteRequest{Cell: parseCell(cell), Kind: mvcc.KindDelete})
		case "lock":
			writes = append(writes, mvcc.CellWriteRequest{Cell: parseCell(cell), Kind: mvcc.KindLock})
		case "notify":
			notifies = append(notifies, parseCell(cell))
		default:
			s.td.Fatalf(s.t, "unknown line %q", line)
		}
	}
	return writes, notifies
}

// answer applies the mutations and describes the result; every status is printed with all its
// fields.
func (s *script) answer(res mvcc.Result, list []mvcc.Mutation, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	s.view.Apply(list)
	var b strings.Builder
	b.WriteString(statusName(res.Status))
	if res.CommitTS != 0 {
		fmt.Fprintf(&b, " commit=%d", res.CommitTS)
	}
	if res.MinCommitTS != 0 {
		fmt.Fprintf(&b, " least=%d", res.MinCommitTS)
	}
	if res.ConflictAt != (mvcc.Cell{}) {
		b.WriteString(" at " + show(res.ConflictAt))
	}
	if len(list) == 0 {
		b.WriteString(" (no effects)")
	}
	for _, l := range res.Locks {
		b.WriteString("\n  " + describe(l))
	}
	return b.String()
}

// describe prints an encountered lock.
func describe(l mvcc.LockInfo) string {
	text := fmt.Sprintf("lock on %s start=%d primary=%s expiry=%d", show(l.Cell), l.Lock.StartTS,
		show(l.Lock.Primary), l.Lock.Expiry)
	if l.Lock.Token != 0 {
		text += fmt.Sprintf(" token=%d", l.Lock.Token)
	}
	if l.Lock.MinCommitTS != 0 {
		text += fmt.Sprintf(" least=%d", l.Lock.MinCommitTS)
	}
	for _, c := range l.Lock.Secondaries {
		text += " and " + show(c)
	}
	return text
}

// statusName returns the status as the scripts print it.
func statusName(st mvcc.Status) string {
	names := []string{"ok", "locked", "conflict", "rolled back", "committed", "live", "not found",
		"unknown", "too old",
		"notify only", "commit timestamp too low", "mismatch"}
	return names[st]
}

func (s *script) reset() string {
	*s = *newScript()
	return ""
}

// observe column=strong|weak|none
func (s *script) observe() string {
	for _, arg := range s.td.CmdArgs {
		kinds := map[string]mvcc.Observed{
			"none": mvcc.NotObserved, "strong": mvcc.ObservedStrong, "weak": mvcc.ObservedWeak,
		}
		s.view.Columns[mvcc.ObservedColumn{Table: testTable, Column: arg.Key}] = kinds[arg.Vals[0]]
	}
	return ""
}

func (s *script) limits() string {
	for _, arg := range s.td.CmdArgs {
		n, err := strconv.Atoi(arg.Vals[0])
		if err != nil {
			s.td.Fatalf(s.t, "%v", err)
		}
		*map[string]*int{"row": &s.lim.Row, "column": &s.lim.Column, "value": &s.lim.Value,
			"batch":  &s.lim.Batch,
			"inline": &s.lim.Inline}[arg.Key] = n
	}
	return ""
}

func (s *script) bound() string {
	s.view.BoundTS = max(s.view.BoundTS, s.ts("bound"))
	s.view.SafepointTS = max(s.view.SafepointTS, s.ts("safepoint"))
	return fmt.Sprintf("bound=%d safepoint=%d", s.view.BoundTS, s.view.SafepointTS)
}

// print prints some rows, or all, the way Figure 4 does.
func (s *script) print() string {
	var rows []string
	for _, arg := range s.td.CmdArgs {
		rows = append(rows, arg.Key)
	}
	if len(rows) == 0 {
		rows = allRows(s.view)
	}
	return figure(s.view, rows)
}

// dump lists the entries of all groups as they are stored.
func (s *script) dump() string {
	var b strings.Builder
	for _, row := range allRows(s.view) {
		for _, e := range s.view.Row(testTable, row) {
			fmt.Fprintf(&b, "%c %s %d%s\n", e.Group, show(e.Cell), e.TS, detail(e))
		}
	}
	return b.String()
}

// detail prints an entry's content.
func detail(e mvcc.HistoryEntry) string {
	kinds := map[mvcc.Kind]string{mvcc.KindPut: "put", mvcc.KindDelete: "delete", mvcc.KindLock: "lock"}
	switch e.Group {
	case mvcc.GroupWrite, mvcc.GroupHistory, mvcc.GroupLocked:
		return fmt.Sprintf(": %s start=%d long=%t %q", kinds[e.Write.Kind], e.Write.StartTS,
			e.Write.Long, e.Write.Value)
	case mvcc.GroupLock:
		return fmt.Sprintf(": %s primary=%s expiry=%d long=%t %q", kinds[e.Lock.Kind],
			show(e.Lock.Primary), e.Lock.Expiry,
			e.Lock.Long, e.Lock.Value)
	case mvcc.GroupNotify:
		return fmt.Sprintf(": attempts=%d parked=%d replay=%t %q", e.Notify.Attempts,
			e.Notify.ParkedTS, e.Notify.Replay, e.Notify.Error)
	case mvcc.GroupIntent:
		return fmt.Sprintf(": primary=%s expiry=%d", show(e.Intent.Primary), e.Intent.Expiry)
	case mvcc.GroupRollback:
		return ""
	default:
		return fmt.Sprintf(": %q", e.Value)
	}
}

// allRows lists the rows with entries.
func allRows(m *mvcctest.MemView) []string {
	var rows []string
	for _, e := range m.Entries() {
		rows = append(rows, e.Cell.Row)
	}
	slices.Sort(rows)
	return slices.Compact(rows)
}
