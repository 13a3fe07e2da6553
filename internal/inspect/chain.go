package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

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
	More  bool        `json:"more,omitempty"` // the transaction wrote more than maxWrites cells
	// Changes is the number of changes of the cell that the run acknowledged, if more than one.
	Changes    int    `json:"changes,omitempty"`
	RolledBack int    `json:"rolled_back,omitempty"` // rolled-back runs since the change
	Replay     bool   `json:"replay,omitempty"`      // the run is a replay of the change
	Attempts   uint32 `json:"attempts,omitempty"`
	ParkedTS   uint64 `json:"parked_ts,omitempty"`
	Error      string `json:"error,omitempty"`
	SameAs     int    `json:"same_as,omitempty"` // an earlier step of the same transaction
	Asked      bool   `json:"asked,omitempty"`   // the step or a repetition made the requested change
	// Repeats is the number of later runs of the observer on the cell that it set off itself,
	// perhaps by other observers; they are not separate steps. RepeatedTS is the start of the last.
	Repeats    int    `json:"repeats,omitempty"`
	RepeatedTS uint64 `json:"repeated_ts,omitempty"`

	at *pb.Cell // a cell of a row that the step wrote to; for a waiting run, the observed cell
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
	// Cut reports that Limit omitted steps, Deep that Depth or maxRuns did, Wide that a row has
	// more cells than a node returns, Old that transactions are older than the kept history.
	Cut, Deep, Wide, Old bool

	seen   map[uint64]int      // start timestamp → step
	rows   map[string]*readRow // what was read, so that a chain that stays in a row reads it once
	runs   int                 // followed down from the origin, repetitions included
	cycles []string            // observers that set each other off, as "ping → pong → ping"
}

// maxRuns bounds the runs that are followed in each direction, repetitions included.
const maxRuns = 4096

// ErrNoChange reports that the requested change is not committed or no longer kept.
var ErrNoChange = errors.New("inspect: the requested change is not committed, or no longer kept")

// Trace finds the newest change of the row, or of the column if that is not nil, at or before
// newest. It walks up to the chain's origin and follows the chain down from there.
func (t *Chain) Trace(ctx context.Context, row string, column *string, newest uint64) error {
	t.seen, t.rows = map[uint64]int{}, map[string]*readRow{}
	var only []mvcc.Cell
	if column != nil {
		only = []mvcc.Cell{{Table: t.Table, Row: row, Column: *column}}
	}
	read, err := t.read(ctx, t.Table, row, only...)
	if err != nil {
		return err
	}
	t.Wide = Bounded(read.entries)
	var change *pb.HistoryEntry
	for cell, changes := range read.writes {
		e := newestUpTo(changes, newest)
		if cell.Class == mvcc.ClassData && e.GetWrite().GetCommitTs() > change.GetWrite().GetCommitTs() {
			change = e
		}
	}
	if change == nil {
		return ErrNoChange
	}
	t.Asked = *committedStep(change)
	first, err := t.origin(ctx, committedStep(change))
	if err != nil {
		return err
	}
	t.runs = 0
	return t.follow(ctx, first, 0, false)
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

// IsWrite reports whether the entry is a write record, whether or not the newest of its cell.
func IsWrite(e *pb.HistoryEntry) bool {
	group := mvcc.Group(e.Group)
	return (group == mvcc.GroupWrite || group == mvcc.GroupHistory) && e.Write != nil
}

// origin walks up from a transaction while it is an observer run whose change can be found: the
// newest change of the observed cell that the run has read.
func (t *Chain) origin(ctx context.Context, step *Step) (*Step, error) {
	passed := map[stepKey]bool{}
	for range maxRuns {
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
		if passed[step.key()] = true; len(passed) > t.Depth {
			break
		}
		read, err := t.read(ctx, mvcc.TableID(o.Table), string(ack.Row), wire.Cell(cell))
		if err != nil {
			return nil, err
		}
		change := newestUpTo(read.writes[wire.Cell(cell)], step.StartTS)
		if change == nil { // collected, or a replay of a deleted cell
			return step, nil
		}
		step = committedStep(change)
	}
	t.Deep = true
	return step, nil
}

// stepKey identifies the runs of an observer on a cell.
type stepKey struct {
	observer string
	cell     Cell
}

func (r *Step) key() stepKey {
	if r.On == nil {
		return stepKey{observer: r.Observer}
	}
	return stepKey{r.Observer, *r.On}
}

// repeated returns the earlier step that a step repeats: a run of the same observer on the same
// cell that the step descends from, or, below such a repetition, one that the parent's earlier run
// set off. Nil means none.
func (t *Chain) repeated(step *Step, parent int, again bool) *Step {
	if step.Observer == "" {
		return nil
	}
	key := step.key()
	for i := parent; i > 0 && step.State == Committed; i = t.Steps[i-1].Parent {
		if t.Steps[i-1].key() == key {
			t.cycle(i, parent)
			return t.Steps[i-1]
		}
	}
	for _, s := range t.Steps {
		if again && s.Parent == parent && s.State == step.State && s.key() == key {
			return s
		}
	}
	return nil
}

// cycle notes the observers from a step down to one that sets it off again.
func (t *Chain) cycle(first, last int) {
	name := t.Steps[first-1].Observer
	for i := last; i != first; i = t.Steps[i-1].Parent {
		name = t.Steps[i-1].Observer + " → " + name
	}
	if name = t.Steps[first-1].Observer + " → " + name; !slices.Contains(t.cycles, name) {
		t.cycles = append(t.cycles, name)
	}
}

// follow appends a step and the steps that it triggered, or adds it to the step that it repeats. A run
// may have acknowledged changes of more than one transaction; it is followed once. again: the parent's
// run is a repetition.
func (t *Chain) follow(ctx context.Context, step *Step, parent int, again bool) error {
	if t.runs++; t.runs > maxRuns {
		t.Deep = true
		return nil
	}
	asked := step.State == Committed && step.StartTS == t.Asked.StartTS
	if t.seen[step.StartTS] == 0 {
		if first := t.repeated(step, parent, again); first != nil {
			first.Repeats, first.RepeatedTS = first.Repeats+1, step.StartTS
			first.Asked = first.Asked || asked
			if step.State != Committed {
				return nil
			}
			t.seen[step.StartTS] = first.Step
			return t.descend(ctx, step, first, true)
		}
	}
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
	step.Asked = asked
	if step.SameAs = t.seen[step.StartTS]; step.SameAs > 0 {
		return nil
	}
	t.seen[step.StartTS] = step.Step
	return t.descend(ctx, step, step, false)
}

// descend follows the runs that a transaction triggered, and shows them as steps below shown.
func (t *Chain) descend(ctx context.Context, step, shown *Step, again bool) error {
	found, err := t.look(ctx, step)
	if err != nil {
		return err
	}
	if !again {
		step.Wrote, step.More = found.writes, found.more
	}
	runs, err := t.triggered(ctx, step, found)
	if err != nil {
		return err
	}
	for _, run := range runs {
		// A repetition adds no step, so Depth does not apply to it.
		if shown.Depth >= t.Depth && t.repeated(run, shown.Step, again) == nil {
			t.Deep = true
			continue
		}
		if err := t.follow(ctx, run, shown.Step, again); err != nil {
			return err
		}
	}
	return nil
}

// triggered returns the runs that a transaction's writes have triggered or will trigger, in order of
// their start, those that have not started last.
func (t *Chain) triggered(ctx context.Context, step *Step, found *traces) ([]*Step, error) {
	var runs []*Step
	for _, w := range found.writes {
		for _, o := range t.observersOf(w.cell) {
			// The observers of a column are all weak, and then found.notified has their runs, or
			// all strong. More runs than t.Limit are not shown.
			if o.Weak || len(t.Steps)+len(runs) > t.Limit {
				break
			}
			of, err := t.runsOf(ctx, step, w.cell, o)
			if err != nil {
				return nil, err
			}
			runs = append(runs, of...)
		}
	}
	for _, e := range found.notified {
		o := t.notified(e.Cell)
		cell := wire.CellPB(wire.ColumnOf(o).Cell(string(e.Cell.Row)))
		run := &Step{Observer: o.Name, On: NewCell(cell, t.Names), at: cell}
		run.waits(e.Notify)
		runs = append(runs, run)
	}
	slices.SortStableFunc(runs, func(a, b *Step) int {
		// A run that has not started has a StartTS of 0, which wraps around to sort last.
		return cmp.Compare(a.StartTS-1, b.StartTS-1)
	})
	return runs, nil
}

// runsOf returns the runs of a strong observer for a change of a cell: the first that started after
// the commit, and so has read it (§2.4), and replays that read it again before the cell's next
// change; if none has committed, the one that has yet to. An acknowledgment's start timestamp is
// its run's.
func (t *Chain) runsOf(ctx context.Context, step *Step, cell *pb.Cell,
	o *pb.ObserverInfo) ([]*Step, error) {
	ack := &pb.Cell{
		Table: cell.Table, Row: cell.Row, Class: uint32(mvcc.ClassAck), Column: []byte(o.Name),
	}
	read, err := t.read(ctx, mvcc.TableID(cell.Table), string(cell.Row), wire.Cell(ack), wire.Cell(cell))
	if err != nil {
		return nil, err
	}
	acks, changes := read.writes[wire.Cell(ack)], read.writes[wire.Cell(cell)]
	i, _ := slices.BinarySearchFunc(acks, step.CommitTS, byStart)
	next, _ := slices.BinarySearchFunc(changes, step.CommitTS+1, byCommit)
	var runs []*Step
	for _, e := range acks[i:] {
		if len(runs) > 0 && next < len(changes) && e.Write.StartTs >= changes[next].Write.CommitTs {
			break
		}
		runs = append(runs, committedStep(e))
	}
	if len(runs) == 0 {
		notified := wire.CellPB(wire.NotifyColumn(o).Cell(string(cell.Row)))
		runs = []*Step{uncommitted(read.others, step.CommitTS, ack, cell, notified)}
	}
	for i, run := range runs {
		run.Observer, run.On, run.Replay = o.Name, NewCell(cell, t.Names), i > 0
		if run.StartTS != 0 {
			after := millisBetween(step.CommitTS, run.StartTS)
			run.AfterMS = &after
		}
	}
	first, before := runs[0], uint64(0) // the previous acknowledgment
	if i > 0 {
		before = acks[i-1].Write.StartTs
	}
	if first.State == Committed {
		from, _ := slices.BinarySearchFunc(changes, before+1, byCommit)
		to, _ := slices.BinarySearchFunc(changes, first.StartTS+1, byCommit)
		if to-from > 1 {
			first.Changes = to - from
		}
	}
	for _, e := range read.others {
		if mvcc.Group(e.Group) == mvcc.GroupRollback && e.Ts > step.CommitTS &&
			(first.StartTS == 0 || e.Ts < first.StartTS) && SameCell(e.Cell, ack) {
			first.RolledBack++
		}
	}
	return runs, nil
}

// uncommitted returns the run for a change that no run has acknowledged. notified is the observer's
// notify cell.
func uncommitted(entries []*pb.HistoryEntry, change uint64, ack, cell, notified *pb.Cell) *Step {
	run := &Step{State: NotRun, at: cell}
	var notify *pb.Notify
	for _, e := range entries {
		switch group := mvcc.Group(e.Group); {
		case group == mvcc.GroupLock && SameCell(e.Cell, ack) && e.GetLock().GetStartTs() >= change:
			run.State, run.StartTS = Committing, e.Lock.StartTs
		case group == mvcc.GroupNotify && SameCell(e.Cell, notified):
			notify = e.Notify
		}
	}
	if run.State == NotRun && notify != nil {
		run.waits(notify)
	}
	return run
}

// waits fills in, from its notification, a run that has not committed.
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

// Notes returns what a table of steps has no column for, except the written cells.
func (r *Step) Notes() []string {
	notes := []string{}
	addf := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if r.SameAs > 0 {
		addf("shown above, as step %d", r.SameAs)
	}
	if r.Changes > 1 {
		addf("acknowledged %d changes together", r.Changes)
	}
	if r.Repeats > 0 {
		addf("repeated %d times by its own effects", r.Repeats)
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

// Notes returns remarks on the steps: why some may be missing, and cycles.
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
	for _, c := range t.cycles {
		notes = append(notes, "a cycle: "+c)
	}
	return notes
}

// Next returns a sentence with the command that explains the first step that has not committed; ""
// if all have.
func (t *Chain) Next(cmds Commands) string {
	for _, s := range t.Steps {
		if s.State != Committed {
			return cmds.Suggest("why", "", Operand{"OBSERVER", s.Observer}, Operand{"ROW", string(s.On.Row)}) +
				" says what an observer waits for"
		}
	}
	return ""
}
