package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// `history` reads one row in every group, as it is stored. This file reads the entries
// and converts them to JSON; historyview.go lays them out for people.

// historyCommand shows all that is stored of a row.
func historyCommand(d *deps) *cobra.Command {
	view := &historyView{}
	cmd := &cobra.Command{
		Use: "history TABLE ROW",
		Short: "Show every version of a row: data, locks, write records, notifications, " +
			"acknowledgments",
		Example: "history bank bob\nhistory bank bob --times --full",
		Long: `Show all that a row holds, laid out as Figure 4 of the Percolator paper does: a
block for each column with its data, lock and write columns (and notify and ack columns where an
observer watches it), one line for each timestamp, newest first. "8: data @ 7" in the write
column says: committed at 8, by the transaction that started, and wrote its data, at 7.

It reads what is stored, past locks and without resolving them, and so changes nothing.`,
	}
	in := addInput(cmd)
	addLimit(cmd, &view.limit, 1, "most entries")
	cmd.Flags().BoolVar(&view.full, "full", false, "whole values")
	cmd.Flags().BoolVar(&view.times, "times", false,
		"also show the timestamps' physical part, in UTC")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if view.row, err = in.bytes(args[1]); err != nil {
			return err
		}
		return d.conn.run(cmd, func(ctx context.Context, s *session) error {
			return history(ctx, s, args[0], view)
		})
	}
	return d.withClient(cmd)
}

// history reads the row from its tablet, and from meta the observers whose notify and ack
// columns are shown beside it.
func history(ctx context.Context, s *session, table string, view *historyView) error {
	names, catalogue, err := s.schema(ctx)
	if err != nil {
		return err
	}
	id, err := names.table(table)
	if err != nil {
		return err
	}
	entries, err := s.row(ctx, id, view.row, view.limit+1)
	if err != nil {
		return err
	}
	if len(entries) > view.limit {
		entries = entries[:view.limit]
		defer s.out.cut(view.limit) // after the entries
	} else if bounded(entries) {
		defer s.out.note("all that a node shows of one row, which are %d entries of a kind and "+
			"%d MiB of values; it may have more",
			mvcc.MaxHistory, mvcc.HistoryBytes>>20)
	}
	view.names, view.observed, view.entries = names, observedColumns(catalogue, id), entries
	if s.out.json() {
		for _, e := range view.entries {
			if err := s.out.object(historyObject(e, names)); err != nil {
				return err
			}
		}
	} else if _, err := io.WriteString(s.out.stdout, view.text()); err != nil {
		return err
	}
	if len(view.entries) == 0 {
		return withHint(fmt.Errorf("%w: table %s holds nothing in row %s", errNoValue, table,
			printable(view.row)),
			rowsThatExist, operand{"TABLE", table})
	}
	return nil
}

// rowsThatExist is advice for a row of TABLE that was not found.
const rowsThatExist = "`scan TABLE --limit 10` shows rows that exist; " +
	"--escape go or --hex writes any bytes"

// bounded reports whether a tablet may have more of the row than it has answered,
// whatever --limit is.
func bounded(entries []*pb.HistoryEntry) bool {
	groups, bytes := map[uint32]int{}, 0
	for _, e := range entries {
		groups[e.Group]++
		bytes += len(e.Value)
		if groups[e.Group] > mvcc.MaxHistory {
			return true
		}
	}
	return bytes >= mvcc.HistoryBytes
}

// observedColumns maps the observers of one table to the columns that they observe.
func observedColumns(c *pb.Catalogue, table mvcc.TableID) map[string]string {
	observed := map[string]string{}
	for _, o := range c.GetObservers() {
		if o.Table == uint32(table) && !o.Retired {
			observed[o.Name] = string(o.Column)
		}
	}
	return observed
}

// historyJSON is one entry of a row's history in JSON. Fields that its group does not
// have are left out.
type historyJSON struct {
	Column   jsonBytes `json:"column"`
	Class    string    `json:"class"` // "data" or "ack"; of an ack, Column is the observer's name
	Group    string    `json:"group"`
	TS       uint64    `json:"ts"` // where Figure 4 would show the entry
	StartTS  uint64    `json:"start_ts,omitempty"`
	CommitTS uint64    `json:"commit_ts,omitempty"`
	Kind     string    `json:"kind,omitempty"`
	// nil also when the value is in a data entry of its own
	Value    *jsonBytes  `json:"value,omitempty"`
	Primary  *cellJSON   `json:"primary,omitempty"`
	Expiry   uint64      `json:"expiry,omitempty"`
	Worker   *workerJSON `json:"worker,omitempty"`
	Attempts uint32      `json:"attempts,omitempty"`
	ParkedTS uint64      `json:"parked_ts,omitempty"`
	Error    string      `json:"error,omitempty"`
}

// cellJSON is the address of a cell.
type cellJSON struct {
	Table  string    `json:"table"`
	Row    jsonBytes `json:"row"`
	Class  string    `json:"class"`
	Column jsonBytes `json:"column"`
}

// workerJSON is who wrote a lock. Node 0 is a remote client.
type workerJSON struct {
	Node        uint64 `json:"node"`
	Incarnation uint64 `json:"incarnation"`
}

// groupNames are the paper's names of the locality groups (Figure 5), and our own for the
// groups that it does not have.
var groupNames = map[mvcc.Group]string{
	mvcc.GroupWrite: "write", mvcc.GroupHistory: "write", mvcc.GroupData: "data",
	mvcc.GroupLock:     "lock",
	mvcc.GroupRollback: "rollback", mvcc.GroupNotify: "notify", mvcc.GroupIntent: "intent",
	mvcc.GroupRaw: "raw",
}

// newCellJSON converts an address; nil stays nil.
func newCellJSON(c *pb.Cell, names *names) *cellJSON {
	if c == nil {
		return nil
	}
	return &cellJSON{names.byID(c.Table), jsonBytes(c.Row), className(c.Class), jsonBytes(c.Column)}
}

// newWorkerJSON converts a worker; nil is a remote client, as in the protocol.
func newWorkerJSON(w *pb.Worker) *workerJSON {
	return &workerJSON{w.GetNode(), w.GetIncarnation()}
}

// className returns the name of a Cell.class.
func className(class uint32) string {
	if mvcc.Class(class) == mvcc.ClassAck {
		return "ack"
	}
	return "data"
}

// kindName names what a write does.
func kindName(kind pb.Kind) string {
	if kind == pb.Kind_KIND_DELETE {
		return "delete"
	}
	return "put"
}

// inlineValue is the value beside a record; nil if it is elsewhere or there is none.
func inlineValue(kind pb.Kind, long bool, value []byte) *jsonBytes {
	if long || kind == pb.Kind_KIND_DELETE {
		return nil
	}
	v := jsonBytes(value)
	return &v
}

// historyObject converts an entry. Each group has fields of its own; what it lacks stays
// zero and is left out.
func historyObject(e *pb.HistoryEntry, names *names) historyJSON {
	group := mvcc.Group(e.Group)
	out := historyJSON{
		Column: jsonBytes(e.Cell.GetColumn()), Class: className(e.Cell.GetClass()),
		Group: groupNames[group], TS: entryTS(e),
	}
	switch group {
	case mvcc.GroupWrite, mvcc.GroupHistory:
		w := e.GetWrite()
		out.StartTS, out.CommitTS, out.Kind = w.GetStartTs(), w.GetCommitTs(), kindName(w.GetKind())
		out.Value = inlineValue(w.GetKind(), w.GetLong(), w.GetValue())
	case mvcc.GroupLock:
		l := e.GetLock()
		out.StartTS, out.Expiry, out.Kind = l.GetStartTs(), l.GetExpiry(), kindName(l.GetKind())
		out.Primary, out.Worker = newCellJSON(l.GetPrimary(), names), newWorkerJSON(l.GetWorker())
		out.Value = inlineValue(l.GetKind(), l.GetLong(), l.GetValue())
	case mvcc.GroupNotify:
		n := e.GetNotify()
		out.Attempts, out.ParkedTS, out.Error = n.GetAttempts(), n.GetParkedTs(), n.GetError()
	case mvcc.GroupIntent:
		i := e.GetIntent()
		out.StartTS, out.Expiry = e.Ts, i.GetExpiry()
		out.Primary, out.Worker = newCellJSON(i.GetPrimary(), names), newWorkerJSON(i.GetWorker())
	case mvcc.GroupData, mvcc.GroupRaw:
		v := jsonBytes(e.Value)
		out.StartTS, out.Value = e.Ts, &v
	case mvcc.GroupRollback:
		out.StartTS = e.Ts
	}
	return out
}

// entryTS is the timestamp at which Figure 4 shows the entry. Groups with one entry a
// cell carry it inside.
func entryTS(e *pb.HistoryEntry) uint64 {
	switch mvcc.Group(e.Group) {
	case mvcc.GroupWrite, mvcc.GroupHistory:
		return e.GetWrite().GetCommitTs()
	case mvcc.GroupLock:
		return e.GetLock().GetStartTs()
	case mvcc.GroupNotify:
		return e.GetNotify().GetTs()
	}
	return e.Ts
}

// sameCell compares addresses: a lock whose primary is its own cell is the primary.
func sameCell(a, b *pb.Cell) bool {
	return a.GetTable() == b.GetTable() && a.GetClass() == b.GetClass() &&
		bytes.Equal(a.GetRow(), b.GetRow()) && bytes.Equal(a.GetColumn(), b.GetColumn())
}

// newestWrite is the cell's newest write record; nil if it has none.
func newestWrite(entries []*pb.HistoryEntry, cell *pb.Cell) *pb.Write {
	for _, e := range entries {
		if mvcc.Group(e.Group) == mvcc.GroupWrite && sameCell(e.Cell, cell) {
			return e.Write
		}
	}
	return nil
}
