package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/pbjson"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file gathers the evidence of why an observer did or did not run for a row; verdict.go
// judges it.

// Why explains why an observer did or did not run for a row. Fields of unknown evidence are omitted
// from JSON.
type Why struct {
	Verdict      string        `json:"verdict"`        // one of Verdicts; programs may rely on it
	Sentence     string        `json:"sentence"`       // times in it are the oracle's
	Next         string        `json:"next,omitempty"` // what to do, with commands in backquotes
	Table        string        `json:"table"`
	Row          pbjson.Bytes  `json:"row"`
	Now          uint64        `json:"now"`                // a timestamp later than all in the row
	Observer     *Observer     `json:"observer,omitempty"` // nil: the catalogue does not know the name
	Change       *Change       `json:"change,omitempty"`   // the newest of the observed cell, deletions too
	Run          *Change       `json:"run,omitempty"`      // the last; its start_ts is the acknowledgment (§2.4)
	Effects      *Effects      `json:"effects,omitempty"`  // of Run; nil: no node remembers it
	Notification *Notification `json:"notification,omitempty"`
	Locks        []Obstacle    `json:"locks,omitempty"` // those that the run meets, then intents

	name   string
	names  *Names
	onNode bool            // a node runs the observer
	going  *pb.ObserverRow // what the nodes report of the row; nil: no trouble
	rows   int             // 1 if anything is stored of the row, in whichever column; else 0
}

// Change is a write record.
type Change struct {
	CommitTS uint64 `json:"commit_ts"`
	StartTS  uint64 `json:"start_ts"`
	Kind     string `json:"kind"` // put or delete
}

// Effects are the reads and writes of a run.
type Effects struct {
	Read      []TableColumn `json:"read"`
	MoreRead  bool          `json:"more_read,omitempty"` // Read lacks further columns
	Wrote     []TableColumn `json:"wrote"`
	MoreWrote bool          `json:"more_wrote,omitempty"`
	Cells     uint64        `json:"cells"`           // number of cells written
	Batch     uint32        `json:"batch,omitempty"` // changes that the run handled together, if more than one
}

// TableColumn is a column of a table. Without Column it means all columns, which a scan read.
type TableColumn struct {
	Table  string       `json:"table"`
	Column pbjson.Bytes `json:"column,omitempty"`
}

// newEffects converts the effects of a run; nil stays nil.
func newEffects(r *pb.ObserverRun) *Effects {
	if r == nil {
		return nil
	}
	columns := func(in []*pb.TableColumn) []TableColumn {
		out := []TableColumn{}
		for _, c := range in {
			out = append(out, TableColumn{c.GetTable(), pbjson.Bytes(c.GetColumn())})
		}
		return out
	}
	e := &Effects{columns(r.Read), r.MoreRead, columns(r.Wrote), r.MoreWrote, r.Cells, r.Batch}
	if e.Batch == 1 {
		e.Batch = 0
	}
	return e
}

// Text returns a description of the run's reads and writes.
func (e *Effects) Text() string {
	names := func(columns []TableColumn, more bool) string {
		var list []string
		for _, c := range columns {
			column := "all columns"
			if c.Column != "" {
				column = Printable(string(c.Column))
			}
			list = append(list, Printable(c.Table)+"/"+column)
		}
		if more {
			list = append(list, "…")
		}
		return strings.Join(list, ", ")
	}
	read, wrote := "read nothing", "wrote nothing"
	if len(e.Read) > 0 {
		read = "read " + names(e.Read, e.MoreRead)
	}
	if e.Cells > 0 {
		wrote = fmt.Sprintf("wrote %d cells of %s", e.Cells, names(e.Wrote, e.MoreWrote))
	} else if len(e.Wrote) > 0 {
		wrote = "notified " + names(e.Wrote, e.MoreWrote)
	}
	text := read + "; " + wrote
	if e.Batch > 0 {
		text += fmt.Sprintf(", for %d changes together", e.Batch)
	}
	return text
}

// Notification is the notification of a row.
type Notification struct {
	TS       uint64 `json:"ts"`
	Attempts uint32 `json:"attempts"`
	ParkedTS uint64 `json:"parked_ts,omitempty"`
	Replay   bool   `json:"replay,omitempty"`
	Error    string `json:"error,omitempty"`
}

// Obstacle is a lock that a run waits for or resolves, or a weak notification whose transaction is
// not settled, which a run does not wait for.
type Obstacle struct {
	On       string `json:"on"` // change, ack (a run's own, most often) or intent
	StartTS  uint64 `json:"start_ts"`
	Primary  *Cell  `json:"primary"`
	State    string `json:"state"`               // one of the fates
	CommitTS uint64 `json:"commit_ts,omitempty"` // of FateCommitted
	Until    uint64 `json:"until,omitempty"`     // alive or expired: the primary's expiry, which heartbeats move

	primary *pb.Cell
}

// What an Obstacle is on.
const (
	OnChange = "change"
	OnAck    = "ack"
	OnIntent = "intent"
)

// Fates of a transaction.
const (
	FateAlive = "alive"
	// FateExpired means that the next transaction that encounters a lock of this one rolls it back. It
	// also stands for an asynchronous commit whose cells could not all be queried.
	FateExpired    = "expired"
	FateCommitted  = "committed"
	FateRolledBack = "rolled_back"
)

// NewNotification converts a notification; nil stays nil.
func NewNotification(n *pb.Notify) *Notification {
	if n == nil {
		return nil
	}
	return &Notification{n.Ts, n.Attempts, n.ParkedTs, n.Replay, n.Error}
}

// newChange converts a write record; nil stays nil.
func newChange(w *pb.Write) *Change {
	if w == nil {
		return nil
	}
	return &Change{w.CommitTs, w.StartTs, KindName(w.Kind)}
}

// ErrNoObserver is returned for names that are not in the catalogue.
var ErrNoObserver = errors.New("no such observer")

// NoObserver returns the error for a name that is not in the catalogue. It wraps ErrNoObserver.
func NoObserver(name string) error {
	return coded.Errorf("", "%w: %s", ErrNoObserver, Printable(name))
}

// Explain reads catalogue, row and queues, and judges. It changes nothing: an expired lock is
// reported, not resolved. The row is one view of its tablet. Catalogue and queues are read before
// it, so that what the row shows is not explained by a state that came later; the fates of
// transactions and the effects of the last run after it. An empty table is the observer's.
func Explain(ctx context.Context, client *txn.Client, cmds Commands, table, row,
	observer string) (*Why, error) {
	names, err := ReadNames(ctx, client.Transport())
	if err != nil {
		return nil, err
	}
	states, err := client.Transport().Observers(ctx)
	if err != nil {
		return nil, err
	}
	var found *pb.ObserverState
	for _, o := range states {
		if o.GetInfo().GetName() == observer {
			found = o
		}
	}
	info := found.GetInfo()
	if table == "" {
		if info == nil {
			return nil, NoObserver(observer)
		}
		table = info.TableName
	}
	w := &Why{Table: table, Row: pbjson.Bytes(row), name: observer, names: names, onNode: found.GetStatus() != nil}
	for _, r := range found.GetStatus().GetRows() {
		if string(r.Row) == row {
			w.going = r
		}
	}
	id, err := names.Table(table)
	if err != nil {
		return nil, err
	}
	// One request reads change, acknowledgment, notification and locks. A row never spans
	// two tablets, so they are of one moment and can be compared.
	ack := mvcc.Cell{Table: id, Row: row, Class: mvcc.ClassAck, Column: observer}
	cells := []mvcc.Cell{ack}
	if info != nil && info.TableName == table {
		cells = append(cells, wire.ColumnOf(info).Cell(row))
	}
	entries, err := Row(ctx, client, id, row, 0, cells...)
	if err != nil {
		return nil, err
	}
	some, err := Row(ctx, client, id, row, 1)
	if err != nil {
		return nil, err
	}
	now, err := client.Timestamp(ctx)
	if err != nil {
		return nil, err
	}
	w.rows, w.Now = len(some), uint64(now)
	w.Run = newChange(NewestWrite(entries, wire.CellPB(ack))) // also if the observer is gone
	if info != nil {
		w.Observer = NewObserver(found, now)
	}
	if len(cells) > 1 {
		notified := wire.CellPB(wire.NotifyColumn(info).Cell(row))
		err := w.read(ctx, client, entries, wire.CellPB(ack), wire.CellPB(cells[1]), notified)
		if err != nil {
			return nil, err
		}
	}
	w.readEffects(ctx, client)
	w.judge()
	w.Next = cmds.Advice(w.Next, Operand{"OBSERVER", observer}, Operand{"TABLE", table}, Operand{"ROW", row})
	return w, nil
}

// readEffects queries the nodes for the reads and writes of the last run.
func (w *Why) readEffects(ctx context.Context, client *txn.Client) {
	if w.Observer == nil || w.Run == nil {
		return
	}
	// A node of an earlier build does not implement the request, and any node may have forgotten
	// the run: the effects are then unknown.
	answer, err := client.Admin().ObserverRun(ctx, &pb.ObserverRunRequest{Name: w.name, Row: []byte(w.Row)})
	if err == nil && answer.GetRun().GetStartTs() == w.Run.StartTS {
		w.Effects = newEffects(answer.Run)
	}
}

// read selects what concerns the observer from the row's entries, and reads the fate of
// the transactions in the way.
func (w *Why) read(ctx context.Context, client *txn.Client, entries []*pb.HistoryEntry,
	ack, cell, notified *pb.Cell) error {
	w.Change = newChange(NewestWrite(entries, cell))
	var intents []Obstacle
	for _, e := range entries {
		observed, acks := SameCell(e.Cell, cell), SameCell(e.Cell, ack)
		switch group := mvcc.Group(e.Group); {
		case group == mvcc.GroupNotify && SameCell(e.Cell, notified):
			w.Notification = NewNotification(e.Notify)
		case group == mvcc.GroupLock && (observed || acks):
			o := Obstacle{On: OnChange, StartTS: e.Lock.StartTs}
			if acks {
				o.On = OnAck
			}
			if err := w.fate(ctx, client, &o, e.Lock.Primary, e.Lock.Expiry); err != nil {
				return err
			}
			w.Locks = append(w.Locks, o)
		case group == mvcc.GroupIntent && observed:
			o := Obstacle{On: OnIntent, StartTS: e.Ts}
			if err := w.fate(ctx, client, &o, e.Intent.Primary, e.Intent.Expiry); err != nil {
				return err
			}
			intents = append(intents, o)
		}
	}
	w.Locks = append(w.Locks, intents...)
	return nil
}

// askTimeout limits the time in which the tablets of an asynchronous commit answer.
const askTimeout = 2 * time.Second

// fate reads the state of a transaction from its primary's row, and that of an asynchronous commit
// from all of its cells, if their tablets answer within askTimeout. It decides nothing; a status check would
// roll an expired transaction back.
func (w *Why) fate(ctx context.Context, client *txn.Client, o *Obstacle, primary *pb.Cell,
	expiry uint64) error {
	o.Primary, o.primary = NewCell(primary, w.names), primary
	at := wire.Cell(primary)
	entries, err := Row(ctx, client, at.Table, at.Row, 0, at)
	if err != nil {
		return err
	}
	// If nothing is found, the primary's prewrite may still arrive until this lock
	// expires.
	o.Until = expiry
	var lock *pb.Lock // the primary's
	for _, e := range entries {
		if !SameCell(e.Cell, primary) {
			continue
		}
		switch group := mvcc.Group(e.Group); {
		case IsWrite(e) && e.Write.StartTs == o.StartTS:
			o.State, o.CommitTS, o.Until = FateCommitted, e.Write.CommitTs, 0
			return nil
		case group == mvcc.GroupRollback && e.Ts == o.StartTS:
			o.State, o.Until = FateRolledBack, 0
			return nil
		case group == mvcc.GroupLock && e.GetLock().GetStartTs() == o.StartTS:
			o.Until, lock = e.Lock.Expiry, e.Lock
		}
	}
	if lock.GetMinCommitTs() != 0 {
		asked, cancel := context.WithTimeout(ctx, askTimeout)
		committed, rolledBack, err := client.AskAsync(asked, wire.LockInfo(&pb.LockInfo{Cell: primary, Lock: lock}))
		cancel()
		switch {
		case err != nil: // a tablet does not answer: the lock alone decides
		case committed != 0:
			o.State, o.CommitTS, o.Until = FateCommitted, uint64(committed), 0
			return nil
		case rolledBack:
			o.State, o.Until = FateRolledBack, 0
			return nil
		}
	}
	// Expiry is judged by the oracle's time, as by a reader that meets the lock
	// (design section 4, "A missing primary is not a rollback").
	o.State = FateAlive
	if o.Until <= w.Now {
		o.State = FateExpired
	}
	return nil
}

// changedAt returns the time of the cell's last change, and acknowledged that of the start of the
// last run, which has seen all earlier changes; 0 means never.
func (w *Why) changedAt() uint64 {
	if w.Change == nil {
		return 0
	}
	return w.Change.CommitTS
}

func (w *Why) acknowledged() uint64 {
	if w.Run == nil {
		return 0
	}
	return w.Run.StartTS
}

// due reports whether the observer must run, by the framework's rule (§2.4); weak ones by the
// notification alone.
func (w *Why) due() bool {
	n := w.Notification
	if w.Observer.Weak {
		return n != nil
	}
	// The same test as the framework's: a replay counts as a change at its own timestamp.
	return n != nil && n.Replay && n.TS > w.acknowledged() || w.changedAt() > w.acknowledged()
}

// when formats a timestamp with its time and age.
func (w *Why) when(ts uint64) string {
	return fmt.Sprintf("%d (%s UTC, %s ago)", ts, Clock(mvcc.Timestamp(ts)), w.ago(ts))
}

func (w *Why) ago(ts uint64) string { return Ago(mvcc.Timestamp(ts), mvcc.Timestamp(w.Now)) }

// Evidence returns the names and texts on which the verdict is based.
func (w *Why) Evidence() (facts [][2]string) {
	addf := func(name, format string, args ...any) {
		facts = append(facts, [2]string{name, fmt.Sprintf(format, args...)})
	}
	weak := w.Observer != nil && w.Observer.Weak
	if o := w.Observer; o == nil {
		addf("observer", "not in the catalogue")
	} else {
		kind := "strong"
		if o.Weak {
			kind = "weak"
		}
		addf("observer", "%s, %s, on column %s of table %s", o.State, kind, Printable(string(o.Column)),
			Printable(o.Table))
		addf("queues", "%s", w.queues())
		if o.Table != w.Table {
			return facts // the row of this table was not read
		}
	}
	switch {
	case weak || w.Observer == nil:
	case w.Change == nil:
		addf("change", "none is committed")
	default:
		addf("change", "%s committed at %s, begun at %d", w.Change.Kind, w.when(w.changedAt()), w.Change.StartTS)
	}
	switch {
	case w.Run != nil:
		addf("last run", "began at %s, committed at %d", w.when(w.acknowledged()), w.Run.CommitTS)
	case !weak:
		addf("last run", "none is acknowledged")
	}
	if w.Effects != nil {
		addf("effects", "%s", w.Effects.Text())
	}
	switch n := w.Notification; {
	case n != nil:
		addf("notification", "%s, of %s", n.Text(), w.when(n.TS))
	case w.Observer != nil:
		addf("notification", "none")
	}
	for i := range w.Locks {
		o := &w.Locks[i]
		addf("lock", "%s: transaction %d, %s, primary %s/%s.%s", o.On, o.StartTS, w.fateText(o), o.Primary.Table,
			Shortened(string(o.primary.Row), ValueWidth/2), ColumnText(o.primary))
	}
	addf("now", "%d (%s UTC)", w.Now, Clock(mvcc.Timestamp(w.Now)))
	return facts
}

// queues describes what waits and runs, over all rows of the observer.
func (w *Why) queues() string {
	o := w.Observer
	text := fmt.Sprintf("%d waiting, %d parked", o.Waiting, o.Parked)
	if o.OldestTS != 0 {
		text += ", the oldest for " + w.ago(o.OldestTS)
	}
	if !w.onNode {
		return text + "; no node that has answered runs it"
	}
	text += fmt.Sprintf("; on all nodes %d running", o.Running)
	if o.Limit > 0 {
		text += fmt.Sprintf(" of at most %d", o.AtOnce())
	}
	text += fmt.Sprintf(", %d queued, %d pausing after a failure", o.Queued, o.Backoff)
	if o.Stuck > 0 {
		text += fmt.Sprintf(", %d that do not return", o.Stuck)
	}
	return text + fmt.Sprintf("; %d runs, %d failures", o.Runs, o.Failures)
}

// Text describes the state of a notification without its error.
func (n *Notification) Text() string {
	text := "changed"
	if n.Replay {
		text = "replay"
	}
	switch {
	case n.ParkedTS != 0:
		text = fmt.Sprintf("parked @ %d after %d runs", n.ParkedTS, n.Attempts)
	case n.Attempts != 0:
		text += fmt.Sprintf(", %d runs failed", n.Attempts)
	}
	return text
}
