package cli

import (
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// historyJSON is one entry of a row's history in JSON. Fields that its group does not
// have are left out.
type historyJSON struct {
	Column   jsonBytes   `json:"column"`
	Class    string      `json:"class"` // "data" or "ack"; of an ack, Column is the observer's name
	Group    string      `json:"group"`
	TS       uint64      `json:"ts"` // where Figure 4 would show the entry
	StartTS  uint64      `json:"start_ts,omitempty"`
	CommitTS uint64      `json:"commit_ts,omitempty"`
	Kind     string      `json:"kind,omitempty"`
	Value    *jsonBytes  `json:"value,omitempty"` // nil also when the value is in a data entry of its own
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

// groupNames are the paper's names of the locality groups (Figure 5), and ours for those
// that it has not.
var groupNames = map[mvcc.Group]string{
	mvcc.GroupWrite: "write", mvcc.GroupHistory: "write", mvcc.GroupData: "data", mvcc.GroupLock: "lock",
	mvcc.GroupRollback: "rollback", mvcc.GroupNotify: "notify", mvcc.GroupIntent: "intent", mvcc.GroupRaw: "raw",
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

// className names what Cell.class numbers.
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
		Column: jsonBytes(e.Cell.GetColumn()), Class: className(e.Cell.GetClass()), Group: groupNames[group], TS: entryTS(e),
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
