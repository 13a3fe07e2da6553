package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// This file lays out a row's entries as the paper's Figure 4 does.

// Figure4 lays out the entries of a row. Set its fields and call Tables.
type Figure4 struct {
	Row         string
	Full, Times bool // whole values; a column with the time of each timestamp

	Names    *Names
	Observed map[string]string // observer → column of the row's table
	Entries  []*pb.HistoryEntry
}

// FigureTable is one column of the row.
type FigureTable struct {
	Lines [][]any  // of the table, the header first
	Notes []string // lines below it: what its cells have no room for
}

// ObservedColumns maps the observers of one table to the columns that they observe.
func ObservedColumns(c *pb.Catalogue, table mvcc.TableID) map[string]string {
	observed := map[string]string{}
	for _, o := range c.GetObservers() {
		if o.Table == uint32(table) && !o.Retired {
			observed[o.Name] = string(o.Column)
		}
	}
	return observed
}

// block is the contents of one Percolator column: the paper's columns side by side.
type block struct {
	column string
	// orphan: acknowledgments of an observer that Figure4.Observed lacks. column is the observer's
	// name.
	orphan bool
	lines  map[uint64]*historyLine
	acks   []string // observers, sorted
	notify bool     // the notify column is shown
	notes  []string // lines for what its cells have no room for
}

// historyLine is all entries of a column at one timestamp.
type historyLine struct {
	data, lock, write, notify string
	acks                      map[string]string
}

// at returns the line of a timestamp, new if nothing has happened there yet.
func (b *block) at(ts uint64) *historyLine {
	l := b.lines[ts]
	if l == nil {
		l = &historyLine{acks: map[string]string{}}
		b.lines[ts] = l
	}
	return l
}

// Tables returns a table for each column, sorted by name. The paper's three columns repeat the
// timestamp in every cell, also in empty ones; notify and ack columns, which the figure does not
// have, show only existing entries.
func (v *Figure4) Tables() (tables []FigureTable) {
	for _, b := range v.blocks() {
		tables = append(tables, v.table(b))
	}
	return tables
}

func (v *Figure4) table(b *block) FigureTable {
	c := Printable(b.column)
	header := []any{"key"}
	if !b.orphan {
		header = append(header, c+":data", c+":lock", c+":write")
	}
	if b.notify {
		header = append(header, c+":notify")
	}
	for _, o := range b.acks {
		name := "ack_" + Printable(o)
		if !b.orphan {
			name = c + ":" + name
		}
		header = append(header, name)
	}
	if v.Times {
		header = append(header, "time (UTC)")
	}
	lines := [][]any{header}
	key := Printable(v.Row)
	for _, ts := range slices.Backward(slices.Sorted(maps.Keys(b.lines))) {
		line := b.lines[ts]
		cells := []any{key}
		key = "" // as in the figure: once, on the first line
		if !b.orphan {
			cells = append(cells, stamped(ts, line.data), stamped(ts, line.lock),
				stamped(ts, line.write))
		}
		if b.notify {
			cells = append(cells, stampedIf(ts, line.notify))
		}
		for _, o := range b.acks {
			cells = append(cells, stampedIf(ts, line.acks[o]))
		}
		if v.Times {
			cells = append(cells, Clock(mvcc.Timestamp(ts)))
		}
		lines = append(lines, cells)
	}
	return FigureTable{lines, b.notes}
}

// stamped formats a cell like the figure: "7: $3", and "7:" when there is nothing at 7.
func stamped(ts uint64, text string) string {
	return strings.TrimRight(fmt.Sprintf("%d: %s", ts, text), " ")
}

// stampedIf leaves a cell blank that holds nothing: notify and ack columns are not in the
// figure, and sparse.
func stampedIf(ts uint64, text string) string {
	if text == "" {
		return ""
	}
	return stamped(ts, text)
}

// blocks sorts the entries into columns, by name; acknowledgments go to the column that
// their observer observes.
func (v *Figure4) blocks() []*block {
	byColumn := map[string]*block{}
	orphans := map[string]*block{}
	find := func(in map[string]*block, name string, orphan bool) *block {
		b := in[name]
		if b == nil {
			b = &block{column: name, orphan: orphan, lines: map[uint64]*historyLine{}}
			in[name] = b
		}
		return b
	}
	for _, e := range v.Entries {
		if e.GetCell() == nil {
			continue
		}
		name := string(e.Cell.Column)
		if mvcc.Class(e.Cell.Class) != mvcc.ClassAck {
			v.addEntry(find(byColumn, name, false), e)
			continue
		}
		if column, known := v.Observed[name]; known {
			v.placeAck(find(byColumn, column, false), name, e)
		} else {
			v.placeAck(find(orphans, name, true), name, e)
		}
	}
	for observer, column := range v.Observed {
		if b := byColumn[column]; b != nil {
			b.notify = true
			if !slices.Contains(b.acks, observer) {
				b.acks = append(b.acks, observer)
			}
		}
	}
	var blocks []*block
	for _, from := range []map[string]*block{byColumn, orphans} {
		for _, name := range slices.Sorted(maps.Keys(from)) {
			slices.Sort(from[name].acks)
			blocks = append(blocks, from[name])
		}
	}
	return blocks
}

// addEntry puts an entry of a user's column on its lines.
func (v *Figure4) addEntry(b *block, e *pb.HistoryEntry) {
	ts := EntryTS(e)
	b.note(e)
	switch mvcc.Group(e.Group) {
	case mvcc.GroupWrite, mvcc.GroupHistory:
		w := e.GetWrite()
		b.at(ts).write = writeText(w)
		if value := InlineValue(w.GetKind(), w.GetLong(), w.GetValue()); value != nil {
			b.at(w.GetStartTs()).data = v.value(string(*value))
		}
	case mvcc.GroupLock:
		l := e.GetLock()
		b.at(ts).lock = v.lockText(e.Cell, l)
		if value := InlineValue(l.GetKind(), l.GetLong(), l.GetValue()); value != nil {
			b.at(ts).data = v.value(string(*value))
		}
	case mvcc.GroupData:
		b.at(ts).data = v.value(string(e.Value))
	case mvcc.GroupLocked:
		b.at(ts).lock = fmt.Sprintf("locked since %d", e.GetWrite().GetStartTs())
	case mvcc.GroupRollback:
		b.at(ts).write = "rolled back"
	case mvcc.GroupNotify:
		b.notify = true
		b.at(ts).notify = NewNotification(e.GetNotify()).Text()
	case mvcc.GroupIntent:
		b.notify = true
		b.at(ts).notify = "intent, primary @ " + v.Names.Address(e.Cell, e.GetIntent().GetPrimary())
	}
}

// placeAck adds an entry of observer o's acknowledgment to its lines. Its write record contains
// everything: committed at its timestamp by the run that started at start_ts, which is also the
// value (§2.4).
func (v *Figure4) placeAck(b *block, o string, e *pb.HistoryEntry) {
	if !slices.Contains(b.acks, o) {
		b.acks = append(b.acks, o)
	}
	ts := EntryTS(e)
	b.note(e)
	switch mvcc.Group(e.Group) {
	case mvcc.GroupWrite, mvcc.GroupHistory:
		b.at(ts).acks[o] = "ran @ " + fmt.Sprint(e.GetWrite().GetStartTs())
		if e.GetWrite().GetKind() == pb.Kind_KIND_DELETE {
			b.at(ts).acks[o] = "cleared"
		}
	case mvcc.GroupLock:
		b.at(ts).acks[o] = "locked, " + v.lockText(e.Cell, e.GetLock())
	case mvcc.GroupRollback:
		b.at(ts).acks[o] = "rolled back"
	case mvcc.GroupNotify: // the observer has notify entries of its own
		b.at(ts).acks[o] = NewNotification(e.GetNotify()).Text()
	}
}

// value writes a value into a cell of the layout.
func (v *Figure4) value(value string) string {
	width := ValueWidth
	if v.Full {
		width = 0
	}
	return Shortened(value, width)
}

// writeText returns a write record in the figure's words.
func writeText(w *pb.Write) string {
	if w.GetKind() == pb.Kind_KIND_DELETE {
		return fmt.Sprintf("deleted @ %d", w.GetStartTs())
	}
	return fmt.Sprintf("data @ %d", w.GetStartTs())
}

// lockText returns a lock in the figure's words: "I am primary", or "primary @ Bob.bal".
func (v *Figure4) lockText(cell *pb.Cell, l *pb.Lock) string {
	text := "I am primary"
	if !SameCell(cell, l.GetPrimary()) {
		text = "primary @ " + v.Names.Address(cell, l.GetPrimary())
	}
	if l.GetKind() == pb.Kind_KIND_DELETE {
		text += ", deletes"
	}
	if l.GetKind() == pb.Kind_KIND_LOCK {
		text += ", writes nothing"
	}
	return text
}

// note adds to a block the holder and expiry of a lock or an intent, and the reason of failed runs.
func (b *block) note(e *pb.HistoryEntry) {
	note := ""
	switch mvcc.Group(e.Group) {
	case mvcc.GroupLock:
		l := e.GetLock()
		note = fmt.Sprintf("lock of %d: by %s, until %d", EntryTS(e), WorkerText(l.GetWorker()),
			l.GetExpiry())
	case mvcc.GroupIntent:
		i := e.GetIntent()
		note = fmt.Sprintf("intent of %d: by %s, until %d", EntryTS(e), WorkerText(i.GetWorker()),
			i.GetExpiry())
	case mvcc.GroupNotify:
		if e.GetNotify().GetError() != "" {
			note = "last failed run: " + Printable(e.GetNotify().GetError())
		}
	}
	if note != "" {
		b.notes = append(b.notes, note)
	}
}

// WorkerText describes the writer of a lock, as far as the lock identifies it (design section 4,
// "Liveness").
func WorkerText(w *pb.Worker) string {
	if w.GetNode() == 0 {
		return "a remote client"
	}
	return fmt.Sprintf("node %d incarnation %d", w.GetNode(), w.GetIncarnation())
}
