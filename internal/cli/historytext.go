package cli

import (
	"bytes"
	"fmt"
	"io"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// value writes a value into a cell of the layout.
func (v *historyView) value(value string) string {
	width := valueWidth
	if v.full {
		width = 0
	}
	return shortened(value, width)
}

// writeText is a write record in the figure's words.
func writeText(w *pb.Write) string {
	if w.GetKind() == pb.Kind_KIND_DELETE {
		return fmt.Sprintf("deleted @ %d", w.GetStartTs())
	}
	return fmt.Sprintf("data @ %d", w.GetStartTs())
}

// lockText is a lock in the figure's words: "I am primary", or "primary @ Bob.bal".
func (v *historyView) lockText(cell *pb.Cell, l *pb.Lock) string {
	text := "I am primary"
	if !sameCell(cell, l.GetPrimary()) {
		text = "primary @ " + v.address(cell, l.GetPrimary())
	}
	if l.GetKind() == pb.Kind_KIND_DELETE {
		text += ", deletes"
	}
	return text
}

// address writes row.column of a cell, with the table in front if it is another than that
// of the cell it is seen from.
func (v *historyView) address(from, c *pb.Cell) string {
	column := printable(string(c.GetColumn()))
	if mvcc.Class(c.GetClass()) == mvcc.ClassAck {
		column = "ack_" + column
	}
	text := printable(string(c.GetRow())) + "." + column
	if c.GetTable() != from.GetTable() {
		text = v.names.byID(c.GetTable()) + "/" + text
	}
	return text
}

// sameCell compares addresses: a lock whose primary is its own cell is the primary.
func sameCell(a, b *pb.Cell) bool {
	return a.GetTable() == b.GetTable() && a.GetClass() == b.GetClass() &&
		bytes.Equal(a.GetRow(), b.GetRow()) && bytes.Equal(a.GetColumn(), b.GetColumn())
}

// notifyText says what state a notification is in. Its error is too long for a cell and
// goes into the notes.
func notifyText(n *pb.Notify) string {
	text := "changed"
	if n.GetReplay() {
		text = "replay"
	}
	switch {
	case n.GetParkedTs() != 0:
		text = fmt.Sprintf("parked @ %d after %d runs", n.GetParkedTs(), n.GetAttempts())
	case n.GetAttempts() != 0:
		text += fmt.Sprintf(", %d runs failed", n.GetAttempts())
	}
	return text
}

// writeNotes adds below a block what its cells have no room for: who holds a lock and
// until when, and why runs failed.
func (v *historyView) writeNotes(w io.Writer, b *block) error {
	for _, e := range v.entries {
		if !v.belongs(b, e) {
			continue
		}
		note := ""
		switch mvcc.Group(e.Group) {
		case mvcc.GroupLock:
			note = fmt.Sprintf("lock of %d: by %s, until %d", entryTS(e), workerText(e.GetLock().GetWorker()), e.GetLock().GetExpiry())
		case mvcc.GroupIntent:
			note = fmt.Sprintf("intent of %d: by %s, until %d", entryTS(e), workerText(e.GetIntent().GetWorker()), e.GetIntent().GetExpiry())
		case mvcc.GroupNotify:
			if e.GetNotify().GetError() != "" {
				note = "last failed run: " + printable(e.GetNotify().GetError())
			}
		}
		if note == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "  %s\n", note); err != nil {
			return err
		}
	}
	return nil
}

// belongs reports whether the entry is shown in the block.
func (v *historyView) belongs(b *block, e *pb.HistoryEntry) bool {
	name := string(e.GetCell().GetColumn())
	if mvcc.Class(e.GetCell().GetClass()) != mvcc.ClassAck {
		return !b.orphan && name == b.column
	}
	column, known := v.observed[name]
	if b.orphan {
		return !known && name == b.column
	}
	return known && column == b.column
}

// workerText says who wrote a lock, as far as the lock tells (invariant 7 of design section 4).
func workerText(w *pb.Worker) string {
	if w.GetNode() == 0 {
		return "a remote client"
	}
	return fmt.Sprintf("node %d incarnation %d", w.GetNode(), w.GetIncarnation())
}
