package inspect

import (
	"bytes"
	"context"
	"errors"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/pbjson"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Stored entries of one row, in all locality groups.

var errNoAnswer = errors.New("inspect: invalid answer from the node")

// Entry is one entry of a row's history in JSON. Fields that its group lacks are omitted.
type Entry struct {
	Column   pbjson.Bytes `json:"column"`
	Class    string       `json:"class"` // "data" or "ack"; for an ack, Column is the observer's name
	Group    string       `json:"group"`
	TS       uint64       `json:"ts"` // where Figure 4 would show the entry
	StartTS  uint64       `json:"start_ts,omitempty"`
	CommitTS uint64       `json:"commit_ts,omitempty"`
	Kind     string       `json:"kind,omitempty"`
	// nil if there is no value, or if it is in a data entry of its own
	Value    *pbjson.Bytes `json:"value,omitempty"`
	Primary  *Cell         `json:"primary,omitempty"`
	Expiry   uint64        `json:"expiry,omitempty"`
	Worker   *Worker       `json:"worker,omitempty"`
	Attempts uint32        `json:"attempts,omitempty"`
	ParkedTS uint64        `json:"parked_ts,omitempty"`
	Error    string        `json:"error,omitempty"`
}

// Cell is the address of a cell.
type Cell struct {
	Table  string       `json:"table"`
	Row    pbjson.Bytes `json:"row"`
	Class  string       `json:"class"`
	Column pbjson.Bytes `json:"column"`
}

// Worker is the process that wrote a lock. Node 0 is a remote client.
type Worker struct {
	Node        uint64 `json:"node"`
	Incarnation uint64 `json:"incarnation"`
}

// groupNames are the paper's names of the locality groups (Figure 5), and our own for the
// groups that it does not have.
var groupNames = map[mvcc.Group]string{
	mvcc.GroupWrite: "write", mvcc.GroupHistory: "write", mvcc.GroupData: "data",
	mvcc.GroupLock: "lock", mvcc.GroupLocked: "locked",
	mvcc.GroupRollback: "rollback", mvcc.GroupNotify: "notify", mvcc.GroupIntent: "intent",
	mvcc.GroupRaw: "raw",
}

// NewCell converts an address; nil stays nil.
func NewCell(c *pb.Cell, names *Names) *Cell {
	if c == nil {
		return nil
	}
	return &Cell{names.ByID(c.Table), pbjson.Bytes(c.Row), ClassName(c.Class), pbjson.Bytes(c.Column)}
}

// NewWorker converts a worker; nil is a remote client, as in the protocol.
func NewWorker(w *pb.Worker) *Worker {
	return &Worker{w.GetNode(), w.GetIncarnation()}
}

// ClassName returns the name of a Cell.class.
func ClassName(class uint32) string {
	if mvcc.Class(class) == mvcc.ClassAck {
		return "ack"
	}
	return "data"
}

// KindName returns the name of a kind of write.
func KindName(kind pb.Kind) string {
	switch kind {
	case pb.Kind_KIND_DELETE:
		return "delete"
	case pb.Kind_KIND_LOCK:
		return "lock"
	}
	return "put"
}

// InlineValue returns the value stored in a record; nil if it has none or it is elsewhere.
func InlineValue(kind pb.Kind, long bool, value []byte) *pbjson.Bytes {
	if long || kind == pb.Kind_KIND_DELETE || kind == pb.Kind_KIND_LOCK {
		return nil
	}
	v := pbjson.Bytes(value)
	return &v
}

// NewEntry converts an entry. Fields that its group lacks stay zero and are omitted.
func NewEntry(e *pb.HistoryEntry, names *Names) Entry {
	group := mvcc.Group(e.Group)
	out := Entry{
		Column: pbjson.Bytes(e.Cell.GetColumn()), Class: ClassName(e.Cell.GetClass()),
		Group: groupNames[group], TS: EntryTS(e),
	}
	switch group {
	case mvcc.GroupWrite, mvcc.GroupHistory, mvcc.GroupLocked:
		w := e.GetWrite()
		out.StartTS, out.CommitTS, out.Kind = w.GetStartTs(), w.GetCommitTs(), KindName(w.GetKind())
		out.Value = InlineValue(w.GetKind(), w.GetLong(), w.GetValue())
	case mvcc.GroupLock:
		l := e.GetLock()
		out.StartTS, out.Expiry, out.Kind = l.GetStartTs(), l.GetExpiry(), KindName(l.GetKind())
		out.Primary, out.Worker = NewCell(l.GetPrimary(), names), NewWorker(l.GetWorker())
		out.Value = InlineValue(l.GetKind(), l.GetLong(), l.GetValue())
	case mvcc.GroupNotify:
		n := e.GetNotify()
		out.Attempts, out.ParkedTS, out.Error = n.GetAttempts(), n.GetParkedTs(), n.GetError()
	case mvcc.GroupIntent:
		i := e.GetIntent()
		out.StartTS, out.Expiry = e.Ts, i.GetExpiry()
		out.Primary, out.Worker = NewCell(i.GetPrimary(), names), NewWorker(i.GetWorker())
	case mvcc.GroupData, mvcc.GroupRaw:
		v := pbjson.Bytes(e.Value)
		out.StartTS, out.Value = e.Ts, &v
	case mvcc.GroupRollback:
		out.StartTS = e.Ts
	}
	return out
}

// EntryTS returns the timestamp at which Figure 4 shows the entry. Groups with one entry per cell
// store it in the entry.
func EntryTS(e *pb.HistoryEntry) uint64 {
	switch mvcc.Group(e.Group) {
	case mvcc.GroupWrite, mvcc.GroupHistory, mvcc.GroupLocked:
		return e.GetWrite().GetCommitTs()
	case mvcc.GroupLock:
		return e.GetLock().GetStartTs()
	case mvcc.GroupNotify:
		return e.GetNotify().GetTs()
	}
	return e.Ts
}

// SameCell reports whether two addresses are equal: a lock whose primary is its own cell is the
// primary.
func SameCell(a, b *pb.Cell) bool {
	return a.GetTable() == b.GetTable() && a.GetClass() == b.GetClass() &&
		bytes.Equal(a.GetRow(), b.GetRow()) && bytes.Equal(a.GetColumn(), b.GetColumn())
}

// NewestWrite returns the cell's newest write record; nil if it has none.
func NewestWrite(entries []*pb.HistoryEntry, cell *pb.Cell) *pb.Write {
	for _, e := range entries {
		if mvcc.Group(e.Group) == mvcc.GroupWrite && SameCell(e.Cell, cell) {
			return e.Write
		}
	}
	return nil
}

// Bounded reports whether the tablet may have more entries of the row than it returned, whatever
// --limit is.
func Bounded(entries []*pb.HistoryEntry) bool {
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

// Row reads the stored entries of a row, or of some of its cells. A limit of 0 means the tablet's
// own limit. The answer may be truncated: to prove that a cell is absent, request that cell.
func Row(ctx context.Context, client *txn.Client, table mvcc.TableID, row string, limit int,
	only ...mvcc.Cell) ([]*pb.HistoryEntry, error) {
	request := &pb.HistoryRequest{
		Table: uint32(table), Row: []byte(row), Limit: uint32(max(limit, 0)),
		Cells: wire.CellsPB(only),
	}
	answer, _, err := client.Send(ctx, wire.Position{Table: table, Row: row},
		&pb.TabletRequest{Op: &pb.TabletRequest_History{History: request}})
	if err != nil {
		return nil, err
	}
	if answer.GetHistory() == nil {
		return nil, errNoAnswer
	}
	return answer.GetHistory().Entries, nil
}
