package mvcc_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
)

// columnsOfFigure are Figure 5's columns, followed by those that the paper does not have.
var columnsOfFigure = []string{"data", "lock", "write", "notify", "rollback", "intent"}

// figure prints rows the way Figure 4 does: one line per timestamp, one column per Bigtable column.
// Columns missing in the paper's figure appear only if they are not empty. A value is shown in the
// data column at its start timestamp, wherever it is stored.
func figure(m *mvcctest.MemView, rows []string) string {
	cells := make(map[mvcc.Cell]map[string]map[mvcc.Timestamp]string)
	var order []mvcc.Cell
	put := func(c mvcc.Cell, column string, ts mvcc.Timestamp, text string) {
		if cells[c] == nil {
			cells[c] = make(map[string]map[mvcc.Timestamp]string)
			order = append(order, c)
		}
		if cells[c][column] == nil {
			cells[c][column] = make(map[mvcc.Timestamp]string)
		}
		cells[c][column][ts] = text
	}
	for _, row := range rows {
		for _, e := range m.Row(testTable, row) {
			place(m, e, put)
		}
	}
	slices.SortFunc(order, mvcc.Cell.Compare)
	var b strings.Builder
	head := ""
	for _, c := range order {
		grid := grid(c, cells[c])
		first, rest, _ := strings.Cut(grid, "\n")
		if first == head {
			grid = rest // as in the figure, one head over the rows of one column
		}
		head = first
		b.WriteString(grid)
	}
	return b.String()
}

// place puts one stored entry where Figure 4 shows it.
func place(m *mvcctest.MemView, e mvcc.HistoryEntry, put func(mvcc.Cell, string, mvcc.Timestamp, string)) {
	switch e.Group {
	case mvcc.GroupWrite, mvcc.GroupHistory:
		if e.Write.Kind == mvcc.KindDelete {
			put(e.Cell, "write", e.TS, fmt.Sprintf("deleted @ %d", e.Write.StartTS))
			return
		}
		put(e.Cell, "write", e.TS, fmt.Sprintf("data @ %d", e.Write.StartTS))
		value := e.Write.Value
		if e.Write.Long {
			value, _, _ = m.Data(e.Cell, e.Write.StartTS)
		}
		put(e.Cell, "data", e.Write.StartTS, shorten(value))
	case mvcc.GroupLock:
		text := "I am primary"
		if e.Lock.Primary != e.Cell {
			text = "primary @ " + show(e.Lock.Primary)
		}
		put(e.Cell, "lock", e.TS, text)
		value := e.Lock.Value
		if e.Lock.Long {
			value, _, _ = m.Data(e.Cell, e.TS)
		}
		if e.Lock.Kind == mvcc.KindPut {
			put(e.Cell, "data", e.TS, shorten(value))
		}
	case mvcc.GroupLocked:
		put(e.Cell, "lock", e.TS, fmt.Sprintf("locked @ %d", e.Write.StartTS))
	case mvcc.GroupData:
		put(e.Cell, "data", e.TS, shorten(e.Value))
	case mvcc.GroupRollback:
		put(e.Cell, "rollback", e.TS, "rolled back")
	case mvcc.GroupNotify:
		put(e.Cell, "notify", e.TS, "dirty")
	case mvcc.GroupIntent:
		put(e.Cell, "intent", e.TS, "primary @ "+show(e.Intent.Primary))
	default:
		put(e.Cell, "raw", e.TS, string(e.Value))
	}
}

// grid prints one cell.
func grid(c mvcc.Cell, columns map[string]map[mvcc.Timestamp]string) string {
	shown := slices.Clone(columnsOfFigure[:3])
	for _, name := range columnsOfFigure[3:] {
		if len(columns[name]) > 0 {
			shown = append(shown, name)
		}
	}
	var stamps []mvcc.Timestamp
	for _, column := range columns {
		for ts := range column {
			stamps = append(stamps, ts)
		}
	}
	slices.Sort(stamps)
	var b strings.Builder
	key, name := c.Row, strings.TrimPrefix(show(c), c.Row+".")
	for line, ts := range append([]mvcc.Timestamp{0}, descending(stamps)...) {
		text := fmt.Sprintf("%-6s", []string{"key", key, ""}[min(line, 2)])
		for i, column := range shown {
			entry := name + ":" + column
			if line > 0 {
				entry = strings.TrimSpace(fmt.Sprintf("%d: %s", ts, columns[column][ts]))
			}
			text += fmt.Sprintf("%-*s", []int{14, 24, 18, 16, 18, 22}[min(i, 5)], entry)
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	return b.String()
}

// descending lists every timestamp from the last to the first, as the figure does while they are
// dense.
func descending(stamps []mvcc.Timestamp) []mvcc.Timestamp {
	if len(stamps) > 0 && stamps[len(stamps)-1]-stamps[0] < 8 {
		var all []mvcc.Timestamp
		for ts := stamps[len(stamps)-1]; ts >= stamps[0]; ts-- {
			all = append(all, ts)
		}
		return all
	}
	stamps = slices.Compact(stamps)
	slices.Reverse(stamps)
	return stamps
}
