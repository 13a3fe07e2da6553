package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// `trace` follows one change from the transaction that made it to the runs of observers
// that it set off, by what the repository keeps for its own purposes: write records and
// acknowledgments carry the start timestamp of their transaction, which identifies it. This
// file finds the steps; traceview.go shows them. All of it is one goroutine's.

// maxTraceWrites is how many cells of one transaction are kept.
const maxTraceWrites = 256

func traceCommand(d *deps) *cobra.Command {
	t := &tracer{}
	cmd := &cobra.Command{
		Use:   "trace TABLE ROW [COLUMN]",
		Short: "Show the chain of a change: what wrote it, and which observers ran for it",
		Long: `Show the chain that the newest change of a row or cell (or that as of --at) belongs to: the transaction that began it,
the runs of observers that its writes set off, what those wrote, and so on, with the time of each and the time between
them. Runs that did not happen yet are shown with what is known: waiting, failing, parked, with the last error.

It follows what is stored: write records, acknowledgments, notifications, rollbacks of runs that conflicted. What a
transaction wrote is looked for in the row in which it is known to have written, and with --search in all rows of the
named tables, which reads each of them once for every transaction, as scan would. Runs of weak observers acknowledge
nothing: they are shown while they wait. What has been collected is not known any more.

With -o json each step is an object; "state" is one of ` + traceStates + `.`,
		Example: "trace bank bob\n" +
			"trace bank bob balance --at 5m --search totals -o json",
	}
	in, at := addInput(cmd), addAt(cmd)
	addLimit(cmd, &t.limit, 1, "most steps")
	cmd.Flags().IntVar(&t.depth, "depth", 16, "most runs after one another, up to the beginning and down from there")
	tables := cmd.Flags().StringArray("search", nil,
		"also look in all rows of this table for what a transaction wrote; repeatable")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path, err := in.all(args[1:])
		if err != nil {
			return err
		}
		if t.depth < 1 {
			return usagef(cmd, "--depth %d: give at least 1", t.depth)
		}
		return d.conn.run(cmd, func(ctx context.Context, s *session) error {
			t.s = s
			newest := uint64(math.MaxUint64)
			if *at != "" {
				snapshot, err := openSnapshot(ctx, s.db, *at)
				if err != nil {
					return err
				}
				newest = uint64(snapshot.Timestamp())
				if err := snapshot.Close(); err != nil {
					return err
				}
			}
			if err := t.open(ctx, args[0], *tables); err != nil {
				return err
			}
			if err := t.trace(ctx, path, newest); err != nil {
				return err
			}
			return t.print()
		})
	}
	return d.withClient(cmd)
}

// The states of a step.
const (
	traceCommitted  = "committed"
	traceCommitting = "committing" // a run has locked its acknowledgment
	traceWaiting    = "waiting"
	traceFailing    = "failing" // waits for another try
	traceParked     = "parked"
	traceNotRun     = "not_run" // no run is known, and nothing asks for one

	traceStates = traceCommitted + ", " + traceCommitting + ", " + traceWaiting + ", " +
		traceFailing + ", " + traceParked + ", " + traceNotRun
)

// traceStep is a transaction, or a run that did not become one yet. Times are differences
// of timestamps, so by the oracle's clock. What is not known is left out.
type traceStep struct {
	Step     int       `json:"step"`
	Parent   int       `json:"parent,omitempty"`
	Depth    int       `json:"depth"`
	Observer string    `json:"observer,omitempty"` // whose run it is
	On       *cellJSON `json:"on,omitempty"`       // the cell whose change it ran for
	State    string    `json:"state"`
	StartTS  uint64    `json:"start_ts,omitempty"`
	CommitTS uint64    `json:"commit_ts,omitempty"`
	AfterMS  *int64    `json:"after_ms,omitempty"` // from the parent's commit to the start
	TookMS   *int64    `json:"took_ms,omitempty"`  // from start to commit
	// Wrote are the cells that it is known to have written.
	Wrote []traceWrite `json:"wrote,omitempty"`
	More  bool         `json:"more,omitempty"` // it wrote more than are kept
	// Changes of the cell that the run acknowledged together, if several.
	Changes    int    `json:"changes,omitempty"`
	RolledBack int    `json:"rolled_back,omitempty"` // runs since the change that left a rollback
	Attempts   uint32 `json:"attempts,omitempty"`
	ParkedTS   uint64 `json:"parked_ts,omitempty"`
	Error      string `json:"error,omitempty"`
	SameAs     int    `json:"same_as,omitempty"` // the step that has this transaction already
	Asked      bool   `json:"asked,omitempty"`   // it made the change that was asked about

	at *pb.Cell // a cell of a row in which it has written; for a run that waits, the observed one
}

// traceWrite is a cell that a transaction wrote.
type traceWrite struct {
	cellJSON
	Kind string `json:"kind"`

	cell *pb.Cell
}

// tracer finds the steps of one chain.
type tracer struct {
	s            *session
	limit, depth int
	names        *names
	catalogue    *pb.Catalogue
	table        mvcc.TableID
	search       []mvcc.TableID

	asked traceStep
	steps []*traceStep
	seen  map[uint64]int // start timestamp → step

	cut, deep, wide, old bool // what print has to say about the bounds
}

// open looks the names up.
func (t *tracer) open(ctx context.Context, table string, search []string) (err error) {
	if t.names, t.catalogue, err = t.s.schema(ctx); err != nil {
		return err
	}
	if t.table, err = t.names.table(table); err != nil {
		return err
	}
	for _, name := range search {
		id, err := t.names.table(name)
		if err != nil {
			return err
		}
		t.search = append(t.search, id)
	}
	t.seen = map[uint64]int{}
	return nil
}

// trace finds the change, goes up to where its chain begins, and down from there. path is
// the row and, if there is one, the column.
func (t *tracer) trace(ctx context.Context, path []string, newest uint64) error {
	var only []mvcc.Cell
	if len(path) > 1 {
		only = []mvcc.Cell{{Table: t.table, Row: path[0], Column: path[1]}}
	}
	entries, err := t.s.row(ctx, t.table, path[0], 0, only...)
	if err != nil {
		return err
	}
	t.wide = bounded(entries)
	change := newestUpTo(entries, newest, func(c *pb.Cell) bool {
		return mvcc.Class(c.GetClass()) == mvcc.ClassData
	})
	if change == nil {
		return withHint(fmt.Errorf("%w: no change of row %s that is asked for is committed, or kept",
			errNoValue, printable(path[0])),
			rowsThatExist, operand{"TABLE", t.names.texts[uint32(t.table)]})
	}
	t.asked = *committedStep(change)
	first, err := t.origin(ctx, committedStep(change))
	if err != nil {
		return err
	}
	return t.follow(ctx, first, 0)
}

// committedStep is the transaction that wrote a record.
func committedStep(e *pb.HistoryEntry) *traceStep {
	took := millisBetween(e.Write.StartTs, e.Write.CommitTs)
	return &traceStep{
		State: traceCommitted, StartTS: e.Write.StartTs, CommitTS: e.Write.CommitTs,
		TookMS: &took, at: e.Cell,
	}
}

// millisBetween is the time between two timestamps.
func millisBetween(from, to uint64) int64 {
	return mvcc.Timestamp(to).Millis() - mvcc.Timestamp(from).Millis()
}

// newestUpTo returns the newest write record at or below a timestamp of the cells that
// belong; nil if there is none.
func newestUpTo(entries []*pb.HistoryEntry, newest uint64,
	belongs func(*pb.Cell) bool) (found *pb.HistoryEntry) {
	for _, e := range entries {
		if isWrite(e) && belongs(e.Cell) && e.Write.CommitTs <= newest &&
			e.Write.CommitTs > found.GetWrite().GetCommitTs() {
			found = e
		}
	}
	return found
}

// isWrite reports whether the entry is a write record, the newest of its cell or an older one.
func isWrite(e *pb.HistoryEntry) bool {
	group := mvcc.Group(e.Group)
	return (group == mvcc.GroupWrite || group == mvcc.GroupHistory) && e.Write != nil
}

// origin goes up from a transaction for as long as it is the run of an observer whose
// change can be found: the newest of the observed cell that the run has read.
func (t *tracer) origin(ctx context.Context, step *traceStep) (*traceStep, error) {
	for range t.depth {
		found, err := t.look(ctx, step)
		if err != nil {
			return nil, err
		}
		if len(found.acks) == 0 {
			return step, nil
		}
		ack := found.acks[0]
		step.Observer = string(ack.Column)
		o := findObserver(t.catalogue, step.Observer)
		if o == nil || o.Table != ack.Table { // retired since: its column is not known
			return step, nil
		}
		cell := &pb.Cell{Table: o.Table, Row: ack.Row, Column: o.Column}
		step.On = newCellJSON(cell, t.names)
		entries, err := t.s.row(ctx, mvcc.TableID(o.Table), string(ack.Row), 0, wire.Cell(cell))
		if err != nil {
			return nil, err
		}
		change := newestUpTo(entries, step.StartTS, func(c *pb.Cell) bool {
			return sameCell(c, cell)
		})
		if change == nil { // collected, or it was a replay of a cell that is gone
			return step, nil
		}
		step = committedStep(change)
	}
	t.deep = true
	return step, nil
}

// traces are what one transaction has left.
type traces struct {
	writes []traceWrite
	more   bool
	acks   []*pb.Cell // of the run that it was; several only if one function acknowledged more
	// weak notifications that it made, and that wait
	notified []*pb.HistoryEntry
}

// look finds what a transaction has left in the row in which it has written, and in the
// tables that are searched.
func (t *tracer) look(ctx context.Context, step *traceStep) (*traces, error) {
	table, row := mvcc.TableID(step.at.Table), string(step.at.Row)
	entries, err := t.s.row(ctx, table, row, 0)
	if err != nil {
		return nil, err
	}
	if bounded(entries) { // then at least what observers are concerned with
		t.wide = true
		cells := []mvcc.Cell{wire.Cell(step.at)}
		for _, o := range t.catalogue.GetObservers() {
			if mvcc.TableID(o.Table) == table {
				cells = append(cells, mvcc.Cell{Table: table, Row: row, Column: string(o.Column)},
					mvcc.Cell{Table: table, Row: row, Class: mvcc.ClassAck, Column: o.Name})
			}
		}
		if entries, err = t.s.row(ctx, table, row, 0, cells...); err != nil {
			return nil, err
		}
	}
	found := &traces{}
	for _, e := range entries {
		switch {
		case isWrite(e) && e.Write.StartTs == step.StartTS:
			found.add(e.Cell, e.Write.Kind, t.names)
		case mvcc.Group(e.Group) == mvcc.GroupNotify && e.GetNotify().GetTs() == step.CommitTS:
			if o := t.observerOf(e.Cell); o != nil && o.Weak {
				found.notified = append(found.notified, e)
			}
		}
	}
	for _, id := range t.search {
		if err := t.searchTable(ctx, id, step, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// add keeps one cell. It may be told of twice: of its row, and by the search.
func (f *traces) add(cell *pb.Cell, kind pb.Kind, names *names) {
	if mvcc.Class(cell.Class) == mvcc.ClassAck {
		if !slices.ContainsFunc(f.acks, func(c *pb.Cell) bool { return sameCell(c, cell) }) {
			f.acks = append(f.acks, cell)
		}
		return
	}
	if slices.ContainsFunc(f.writes, func(w traceWrite) bool { return sameCell(w.cell, cell) }) {
		return
	}
	if len(f.writes) == maxTraceWrites {
		f.more = true
		return
	}
	f.writes = append(f.writes, traceWrite{*newCellJSON(cell, names), kindName(kind), cell})
}

// searchTable looks in all of a table for the records of one commit timestamp, until there
// are more than are kept.
func (t *tracer) searchTable(ctx context.Context, id mvcc.TableID, step *traceStep,
	found *traces) error {
	commit := mvcc.Timestamp(step.CommitTS)
	for c, err := range t.s.client.Records(ctx, txn.RecordScan{
		Span: mvcc.Span{Table: id}, At: commit, Since: commit - 1,
	}) {
		if errors.Is(err, percolator.ErrSnapshotTooOld) {
			t.old = true
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
		if found.add(wire.CellPB(c.Cell), kind, t.names); found.more {
			return nil
		}
	}
	return nil
}

// observerOf is the observer of a cell's column; nil if there is none.
func (t *tracer) observerOf(c *pb.Cell) *pb.ObserverInfo {
	for _, o := range t.catalogue.GetObservers() {
		if !o.Retired && o.Table == c.GetTable() && bytes.Equal(o.Column, c.GetColumn()) {
			return o
		}
	}
	return nil
}

// follow appends a step and what it has set off. A run may have acknowledged the changes of
// several transactions: it is followed once.
func (t *tracer) follow(ctx context.Context, step *traceStep, parent int) error {
	if len(t.steps) == t.limit {
		t.cut = true
		return nil
	}
	t.steps = append(t.steps, step)
	step.Step, step.Parent = len(t.steps), parent
	if parent > 0 {
		step.Depth = t.steps[parent-1].Depth + 1
	}
	if step.State != traceCommitted {
		return nil
	}
	step.Asked = step.StartTS == t.asked.StartTS
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
	if len(runs) > 0 && step.Depth >= t.depth {
		t.deep = true
		return nil
	}
	for _, run := range runs {
		if err := t.follow(ctx, run, step.Step); err != nil {
			return err
		}
	}
	return nil
}

// runs are those that a transaction's writes have set off or will, the first one first and
// those that did not begin last.
func (t *tracer) runs(ctx context.Context, step *traceStep, found *traces) ([]*traceStep, error) {
	var runs []*traceStep
	for _, w := range found.writes {
		o := t.observerOf(w.cell)
		if o == nil || o.Weak {
			continue
		}
		if len(t.steps)+len(runs) > t.limit { // no room to show more
			break
		}
		run, err := t.run(ctx, step, w.cell, o)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	for _, e := range found.notified {
		run := &traceStep{
			Observer: t.observerOf(e.Cell).Name, On: newCellJSON(e.Cell, t.names), at: e.Cell,
		}
		run.waits(e.Notify)
		runs = append(runs, run)
	}
	slices.SortStableFunc(runs, func(a, b *traceStep) int {
		return cmp.Compare(a.StartTS-1, b.StartTS-1) // 0 is the greatest
	})
	return runs, nil
}

// run is the run of a strong observer for a change of a cell: the first one that began
// after its commit, and so has read it (§2.4). The acknowledgment's start timestamp is the run's.
func (t *tracer) run(ctx context.Context, step *traceStep, cell *pb.Cell,
	o *pb.ObserverInfo) (*traceStep, error) {
	ack := &pb.Cell{
		Table: cell.Table, Row: cell.Row, Class: uint32(mvcc.ClassAck), Column: []byte(o.Name),
	}
	entries, err := t.s.row(ctx, mvcc.TableID(cell.Table), string(cell.Row), 0, wire.Cell(ack),
		wire.Cell(cell))
	if err != nil {
		return nil, err
	}
	run := &traceStep{State: traceNotRun, at: cell}
	var before uint64 // where the acknowledgment stood until then
	var notify *pb.Notify
	for _, e := range entries {
		switch group := mvcc.Group(e.Group); {
		case isWrite(e) && sameCell(e.Cell, ack) && e.Write.Kind != pb.Kind_KIND_DELETE:
			start := e.Write.StartTs
			if start < step.CommitTS {
				before = max(before, start)
			} else if run.State != traceCommitted || start < run.StartTS {
				run = committedStep(e)
			}
		case group == mvcc.GroupLock && sameCell(e.Cell, ack) && run.State != traceCommitted &&
			e.GetLock().GetStartTs() >= step.CommitTS:
			run.State, run.StartTS = traceCommitting, e.Lock.StartTs
		case group == mvcc.GroupNotify && sameCell(e.Cell, cell):
			notify = e.Notify
		}
	}
	if run.State == traceNotRun && notify != nil {
		run.waits(notify)
	}
	run.Observer, run.On = o.Name, newCellJSON(cell, t.names)
	if run.StartTS != 0 {
		after := millisBetween(step.CommitTS, run.StartTS)
		run.AfterMS = &after
	}
	run.count(entries, ack, cell, before, step.CommitTS)
	return run, nil
}

// count counts the changes of the cell that a run acknowledged with this one, and the runs
// before it that were rolled back. Where the acknowledgment stood before is in before.
func (r *traceStep) count(entries []*pb.HistoryEntry, ack, cell *pb.Cell, before, change uint64) {
	for _, e := range entries {
		switch {
		case isWrite(e) && sameCell(e.Cell, cell) && r.State == traceCommitted &&
			e.Write.CommitTs > before && e.Write.CommitTs <= r.StartTS:
			r.Changes++
		case mvcc.Group(e.Group) == mvcc.GroupRollback && sameCell(e.Cell, ack) &&
			e.Ts > change && (r.StartTS == 0 || e.Ts < r.StartTS):
			r.RolledBack++
		}
	}
	if r.Changes == 1 {
		r.Changes = 0
	}
}

// waits fills in what a notification tells of a run that did not commit yet.
func (r *traceStep) waits(n *pb.Notify) {
	r.State = traceWaiting
	r.Attempts, r.ParkedTS, r.Error = n.GetAttempts(), n.GetParkedTs(), n.GetError()
	switch {
	case r.ParkedTS != 0:
		r.State = traceParked
	case r.Attempts > 0:
		r.State = traceFailing
	}
}
