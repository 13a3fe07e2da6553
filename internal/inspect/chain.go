package inspect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Tracing of one change from its transaction to the observer runs that it triggered. It relies on
// records that the repository keeps anyway: write records and acknowledgments carry the start
// timestamp of their transaction, which identifies it.

// maxWrites bounds the cells kept for one transaction.
const maxWrites = 256

// States of a step.
const (
	Committed  = "committed"
	Committing = "committing" // a run has locked its acknowledgment
	Waiting    = "waiting"
	Failing    = "failing" // failed and waits for a retry
	Parked     = "parked"
	NotRun     = "not_run" // no known run, and no notification

	States = Committed + ", " + Committing + ", " + Waiting + ", " +
		Failing + ", " + Parked + ", " + NotRun
)

// Step is a transaction, or a run that has not committed. Times are differences of timestamps, by
// the oracle's clock. Unknown fields are omitted.
type Step struct {
	Step     int    `json:"step"`
	Parent   int    `json:"parent,omitempty"`
	Depth    int    `json:"depth"`
	Observer string `json:"observer,omitempty"` // the observer of a run
	On       *Cell  `json:"on,omitempty"`       // the cell whose change triggered the run
	State    string `json:"state"`
	StartTS  uint64 `json:"start_ts,omitempty"`
	CommitTS uint64 `json:"commit_ts,omitempty"`
	AfterMS  *int64 `json:"after_ms,omitempty"` // from the parent's commit to the start
	TookMS   *int64 `json:"took_ms,omitempty"`  // from start to commit
	// Wrote are its known writes.
	Wrote []WroteCell `json:"wrote,omitempty"`
	More  bool        `json:"more,omitempty"` // it wrote more than maxWrites cells
	// Changes is the number of changes of the cell that the run acknowledged, if more than one.
	Changes    int    `json:"changes,omitempty"`
	RolledBack int    `json:"rolled_back,omitempty"` // rolled-back runs since the change
	Replay     bool   `json:"replay,omitempty"`      // it is a replay of the change
	Attempts   uint32 `json:"attempts,omitempty"`
	ParkedTS   uint64 `json:"parked_ts,omitempty"`
	Error      string `json:"error,omitempty"`
	SameAs     int    `json:"same_as,omitempty"` // an earlier step of the same transaction
	Asked      bool   `json:"asked,omitempty"`   // it made the requested change

	at *pb.Cell // a cell of a row that it wrote to; for a waiting run, the observed cell
}

// WroteCell is a cell that a transaction wrote.
type WroteCell struct {
	Cell
	Kind string `json:"kind"`

	cell *pb.Cell
}

// Chain finds the steps that lead to and follow from a change. Set its inputs, call Trace once and
// read the results. It must be used by one goroutine.
type Chain struct {
	Client    *txn.Client
	Names     *Names
	Catalogue *pb.Catalogue
	Table     mvcc.TableID
	// Search lists tables that are scanned entirely for a transaction's writes.
	Search []mvcc.TableID
	// Limit bounds the steps; Depth bounds consecutive runs in each direction.
	Limit, Depth int

	Steps []*Step
	Asked Step // the transaction of the requested change
	// Cut and Deep report that Limit or Depth omitted steps, Wide that a row has more cells than a
	// node returns, Old that transactions are older than the kept history.
	Cut, Deep, Wide, Old bool

	seen map[uint64]int // start timestamp → step
}

// ErrNoChange reports that the requested change is not committed or no longer kept.
var ErrNoChange = errors.New("inspect: no change that is asked for is committed, or kept")

// Trace finds the newest change of the row, or of the column if that is not nil, at or before
// newest. It walks up to the chain's origin and follows the chain down from there.
func (t *Chain) Trace(ctx context.Context, row string, column *string, newest uint64) error {
	t.seen = map[uint64]int{}
	var only []mvcc.Cell
	if column != nil {
		only = []mvcc.Cell{{Table: t.Table, Row: row, Column: *column}}
	}
	entries, err := Row(ctx, t.Client, t.Table, row, 0, only...)
	if err != nil {
		return err
	}
	t.Wide = Bounded(entries)
	change := newestUpTo(entries, newest, func(c *pb.Cell) bool {
		return mvcc.Class(c.GetClass()) == mvcc.ClassData
	})
	if change == nil {
		return ErrNoChange
	}
	t.Asked = *committedStep(change)
	first, err := t.origin(ctx, committedStep(change))
	if err != nil {
		return err
	}
	return t.follow(ctx, first, 0)
}

// committedStep returns the step of the transaction that wrote a record.
func committedStep(e *pb.HistoryEntry) *Step {
	took := millisBetween(e.Write.StartTs, e.Write.CommitTs)
	return &Step{
		State: Committed, StartTS: e.Write.StartTs, CommitTS: e.Write.CommitTs,
		TookMS: &took, at: e.Cell,
	}
}

// millisBetween returns the time between two timestamps in milliseconds.
func millisBetween(from, to uint64) int64 {
	return mvcc.Timestamp(to).Millis() - mvcc.Timestamp(from).Millis()
}

// newestUpTo returns the newest write record of matching cells at or below a timestamp; nil if
// there is none.
func newestUpTo(entries []*pb.HistoryEntry, newest uint64,
	belongs func(*pb.Cell) bool) (found *pb.HistoryEntry) {
	for _, e := range entries {
		if IsWrite(e) && belongs(e.Cell) && e.Write.CommitTs <= newest &&
			e.Write.CommitTs > found.GetWrite().GetCommitTs() {
			found = e
		}
	}
	return found
}

// IsWrite reports whether the entry is a write record, whether or not the newest of its cell.
func IsWrite(e *pb.HistoryEntry) bool {
	group := mvcc.Group(e.Group)
	return (group == mvcc.GroupWrite || group == mvcc.GroupHistory) && e.Write != nil
}

// origin walks up from a transaction while it is an observer run whose change can be found: the
// newest change of the observed cell that the run has read.
func (t *Chain) origin(ctx context.Context, step *Step) (*Step, error) {
	for range t.Depth {
		found, err := t.look(ctx, step)
		if err != nil {
			return nil, err
		}
		if len(found.acks) == 0 {
			return step, nil
		}
		ack := found.acks[0]
		step.Observer = string(ack.Column)
		o := FindObserver(t.Catalogue, step.Observer)
		if o == nil || o.Table != ack.Table { // retired: its column is unknown
			return step, nil
		}
		cell := &pb.Cell{Table: o.Table, Row: ack.Row, Column: o.Column}
		step.On = NewCell(cell, t.Names)
		entries, err := Row(ctx, t.Client, mvcc.TableID(o.Table), string(ack.Row), 0, wire.Cell(cell))
		if err != nil {
			return nil, err
		}
		change := newestUpTo(entries, step.StartTS, func(c *pb.Cell) bool {
			return SameCell(c, cell)
		})
		if change == nil { // collected, or a replay of a deleted cell
			return step, nil
		}
		step = committedStep(change)
	}
	t.Deep = true
	return step, nil
}

// traces holds the records of one transaction.
type traces struct {
	writes []WroteCell
	more   bool
	acks   []*pb.Cell // of its run; more than one only for batches
	// its waiting weak notifications
	notified []*pb.HistoryEntry
}

// look finds a transaction's records in the row that it wrote and in the searched tables.
func (t *Chain) look(ctx context.Context, step *Step) (*traces, error) {
	table, row := mvcc.TableID(step.at.Table), string(step.at.Row)
	entries, err := Row(ctx, t.Client, table, row, 0)
	if err != nil {
		return nil, err
	}
	if Bounded(entries) { // then read at least the observed cells
		t.Wide = true
		cells := []mvcc.Cell{wire.Cell(step.at)}
		for _, o := range t.Catalogue.GetObservers() {
			if mvcc.TableID(o.Table) == table {
				cells = append(cells, mvcc.Cell{Table: table, Row: row, Column: string(o.Column)},
					mvcc.Cell{Table: table, Row: row, Class: mvcc.ClassAck, Column: o.Name})
			}
		}
		if entries, err = Row(ctx, t.Client, table, row, 0, cells...); err != nil {
			return nil, err
		}
	}
	found := &traces{}
	for _, e := range entries {
		switch {
		case IsWrite(e) && e.Write.StartTs == step.StartTS:
			found.add(e.Cell, e.Write.Kind, t.Names)
		case mvcc.Group(e.Group) == mvcc.GroupNotify && e.GetNotify().GetTs() == step.CommitTS:
			if o := t.observerOf(e.Cell); o != nil && o.Weak {
				found.notified = append(found.notified, e)
			}
		}
	}
	for _, id := range t.Search {
		if err := t.searchTable(ctx, id, step, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// add keeps one cell. Both the row and the search may report it.
func (f *traces) add(cell *pb.Cell, kind pb.Kind, names *Names) {
	if mvcc.Class(cell.Class) == mvcc.ClassAck {
		if !slices.ContainsFunc(f.acks, func(c *pb.Cell) bool { return SameCell(c, cell) }) {
			f.acks = append(f.acks, cell)
		}
		return
	}
	if slices.ContainsFunc(f.writes, func(w WroteCell) bool { return SameCell(w.cell, cell) }) {
		return
	}
	if len(f.writes) == maxWrites {
		f.more = true
		return
	}
	f.writes = append(f.writes, WroteCell{*NewCell(cell, names), KindName(kind), cell})
}

// searchTable scans a table for the records of one commit timestamp, until maxWrites is exceeded.
func (t *Chain) searchTable(ctx context.Context, id mvcc.TableID, step *Step,
	found *traces) error {
	commit := mvcc.Timestamp(step.CommitTS)
	for c, err := range t.Client.Records(ctx, txn.RecordScan{
		Span: mvcc.Span{Table: id}, At: commit, Since: commit - 1,
	}) {
		if errors.Is(err, percolator.ErrSnapshotTooOld) {
			t.Old = true
			return nil
		}
		if err != nil {
			return err
		}
		if uint64(c.StartTS) != step.StartTS {
			continue
		}
		kind := pb.Kind_KIND_PUT
		if c.Deleted {
			kind = pb.Kind_KIND_DELETE
		}
		if found.add(wire.CellPB(c.Cell), kind, t.Names); found.more {
			return nil
		}
	}
	return nil
}

// FindObserver returns the observer with the name; nil if there is none.
func FindObserver(c *pb.Catalogue, name string) *pb.ObserverInfo {
	for _, o := range c.GetObservers() {
		if o.Name == name {
			return o
		}
	}
	return nil
}

// observerOf returns the observer of a cell's column; nil if there is none.
func (t *Chain) observerOf(c *pb.Cell) *pb.ObserverInfo {
	for _, o := range t.Catalogue.GetObservers() {
		if !o.Retired && o.Table == c.GetTable() && bytes.Equal(o.Column, c.GetColumn()) {
			return o
		}
	}
	return nil
}

// follow appends a step and the steps that it triggered. A run may have acknowledged changes of
// more than one transaction; it is followed once.
func (t *Chain) follow(ctx context.Context, step *Step, parent int) error {
	if len(t.Steps) == t.Limit {
		t.Cut = true
		return nil
	}
	t.Steps = append(t.Steps, step)
	step.Step, step.Parent = len(t.Steps), parent
	if parent > 0 {
		step.Depth = t.Steps[parent-1].Depth + 1
	}
	if step.State != Committed {
		return nil
	}
	step.Asked = step.StartTS == t.Asked.StartTS
	if step.SameAs = t.seen[step.StartTS]; step.SameAs > 0 {
		return nil
	}
	t.seen[step.StartTS] = step.Step
	found, err := t.look(ctx, step)
	if err != nil {
		return err
	}
	step.Wrote, step.More = found.writes, found.more
	runs, err := t.runs(ctx, step, found)
	if err != nil {
		return err
	}
	if len(runs) > 0 && step.Depth >= t.Depth {
		t.Deep = true
		return nil
	}
	for _, run := range runs {
		if err := t.follow(ctx, run, step.Step); err != nil {
			return err
		}
	}
	return nil
}

// runs returns the runs that a transaction's writes have triggered or will trigger, in order of
// their start, those that have not started last.
func (t *Chain) runs(ctx context.Context, step *Step, found *traces) ([]*Step, error) {
	var runs []*Step
	for _, w := range found.writes {
		o := t.observerOf(w.cell)
		if o == nil || o.Weak {
			continue
		}
		if len(t.Steps)+len(runs) > t.Limit { // more would exceed the limit
			break
		}
		of, err := t.runsOf(ctx, step, w.cell, o)
		if err != nil {
			return nil, err
		}
		runs = append(runs, of...)
	}
	for _, e := range found.notified {
		run := &Step{
			Observer: t.observerOf(e.Cell).Name, On: NewCell(e.Cell, t.Names), at: e.Cell,
		}
		run.waits(e.Notify)
		runs = append(runs, run)
	}
	slices.SortStableFunc(runs, func(a, b *Step) int {
		return cmp.Compare(a.StartTS-1, b.StartTS-1) // 0 is the greatest
	})
	return runs, nil
}

// runsOf returns the runs of a strong observer for a change of a cell: the first that started after
// the commit, and so has read it (§2.4), and replays that read it again before the cell's next
// change. An acknowledgment's start timestamp is its run's.
func (t *Chain) runsOf(ctx context.Context, step *Step, cell *pb.Cell,
	o *pb.ObserverInfo) ([]*Step, error) {
	ack := &pb.Cell{
		Table: cell.Table, Row: cell.Row, Class: uint32(mvcc.ClassAck), Column: []byte(o.Name),
	}
	entries, err := Row(ctx, t.Client, mvcc.TableID(cell.Table), string(cell.Row), 0, wire.Cell(ack),
		wire.Cell(cell))
	if err != nil {
		return nil, err
	}
	first := &Step{State: NotRun, at: cell}
	var runs []*Step               // those that committed
	var before uint64              // where the acknowledgment stood until then
	next := uint64(math.MaxUint64) // the cell's next change
	var notify *pb.Notify
	for _, e := range entries {
		switch group := mvcc.Group(e.Group); {
		case IsWrite(e) && SameCell(e.Cell, ack) && e.Write.Kind != pb.Kind_KIND_DELETE:
			if e.Write.StartTs < step.CommitTS {
				before = max(before, e.Write.StartTs)
			} else {
				runs = append(runs, committedStep(e))
			}
		case IsWrite(e) && SameCell(e.Cell, cell) && e.Write.CommitTs > step.CommitTS:
			next = min(next, e.Write.CommitTs)
		case group == mvcc.GroupLock && SameCell(e.Cell, ack) &&
			e.GetLock().GetStartTs() >= step.CommitTS:
			first.State, first.StartTS = Committing, e.Lock.StartTs
		case group == mvcc.GroupNotify && SameCell(e.Cell, cell):
			notify = e.Notify
		}
	}
	if first.State == NotRun && notify != nil {
		first.waits(notify)
	}
	if slices.SortFunc(runs, func(a, b *Step) int { return cmp.Compare(a.StartTS, b.StartTS) }); len(runs) == 0 {
		runs = []*Step{first}
	}
	runs = slices.DeleteFunc(runs, func(r *Step) bool { return r != runs[0] && r.StartTS >= next })
	for i, run := range runs {
		run.Observer, run.On, run.Replay = o.Name, NewCell(cell, t.Names), i > 0
		if run.StartTS != 0 {
			after := millisBetween(step.CommitTS, run.StartTS)
			run.AfterMS = &after
		}
	}
	runs[0].count(entries, ack, cell, before, step.CommitTS)
	return runs, nil
}

// count counts the changes of the cell that a run acknowledged with this one, and the earlier runs
// that were rolled back. before is the previous acknowledgment.
func (r *Step) count(entries []*pb.HistoryEntry, ack, cell *pb.Cell, before, change uint64) {
	for _, e := range entries {
		switch {
		case IsWrite(e) && SameCell(e.Cell, cell) && r.State == Committed &&
			e.Write.CommitTs > before && e.Write.CommitTs <= r.StartTS:
			r.Changes++
		case mvcc.Group(e.Group) == mvcc.GroupRollback && SameCell(e.Cell, ack) &&
			e.Ts > change && (r.StartTS == 0 || e.Ts < r.StartTS):
			r.RolledBack++
		}
	}
	if r.Changes == 1 {
		r.Changes = 0
	}
}

// waits fills in a run that has not committed from its notification.
func (r *Step) waits(n *pb.Notify) {
	r.State = Waiting
	r.Attempts, r.ParkedTS, r.Error = n.GetAttempts(), n.GetParkedTs(), n.GetError()
	switch {
	case r.ParkedTS != 0:
		r.State = Parked
	case r.Attempts > 0:
		r.State = Failing
	}
}

// Notes returns what has no field of its own in a table of steps, but for the written cells.
func (r *Step) Notes() []string {
	notes := []string{}
	addf := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if r.SameAs > 0 {
		addf("shown above, as step %d", r.SameAs)
	}
	if r.Changes > 1 {
		addf("acknowledged %d changes together", r.Changes)
	}
	if r.Replay {
		addf("a replay")
	}
	if r.RolledBack > 0 {
		addf("%d runs rolled back", r.RolledBack)
	}
	if r.ParkedTS != 0 {
		addf("parked at %s", Clock(mvcc.Timestamp(r.ParkedTS)))
	}
	if r.Attempts > 0 {
		addf("%d runs failed, the last with: %s", r.Attempts, r.Error)
	}
	return notes
}

// Notes returns what the steps do not say: where there may be more.
func (t *Chain) Notes() []string {
	notes := []string{}
	for _, n := range []struct {
		when bool
		text string
	}{
		{t.Cut, fmt.Sprintf("the first %d steps; --limit shows more", t.Limit)},
		{t.Deep, "the chain continues; --depth shows more"},
		{t.Wide, "a row has more cells than a node returns: only its observed cells were followed"},
		{t.Old, "some transactions are older than the kept history: what they wrote in other rows is unknown"},
		{
			!slices.ContainsFunc(t.Steps, func(s *Step) bool { return s.Asked }),
			fmt.Sprintf("the requested change, of transaction %d, is not among the steps", t.Asked.StartTS),
		},
	} {
		if n.when {
			notes = append(notes, n.text)
		}
	}
	return notes
}

// Next returns the command that explains the first step that has not committed; "" if there is none.
func (t *Chain) Next(cmds Commands) string {
	for _, s := range t.Steps {
		if s.State != Committed {
			return cmds.Suggest("why", "", Operand{"OBSERVER", s.Observer}, Operand{"ROW", string(s.On.Row)}) +
				" says what an observer waits for"
		}
	}
	return ""
}
