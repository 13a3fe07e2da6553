package inspectcmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// `why` answers the commonest question about observers. This file gathers the facts and
// prints them; whyverdict.go judges.

// WhyCommand reads what is stored and what the nodes know. It changes nothing: an expired
// lock is reported, not resolved.
func WhyCommand(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why OBSERVER ROW",
		Short: "Say why an observer did or did not run for a row",
		Long: `Explain why an observer did or did not run for a row, what to do about it, and on what
evidence: the observer's state, the newest change of the
observed cell, the acknowledgment of the last run, the notification, locks in the way with what
has become of their transactions, and the node's queues.

The argument order of earlier versions, TABLE ROW OBSERVER, is also accepted.

It only reads. With -o json it is one object; "verdict" is one of:
` + strings.NewReplacer(", "+whyParked, ",\n"+whyParked, ", "+whyFailing,
			",\n"+whyFailing).Replace(VerdictList()) + ".",
		Example: "why count bob\nwhy count bob -o json",
	}
	in := shell.AddInput(cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 3 {
			return nil
		}
		return shell.UsageArgs(cmd.Use)(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		table, observer := "", args[0]
		if len(args) == 3 {
			table, observer = args[0], args[2]
		}
		row, err := in.Bytes(args[1])
		if err != nil {
			return err
		}
		return d.Conn.Run(cmd, func(ctx context.Context, s *shell.Session) error {
			f, err := gatherFacts(ctx, s, table, row, observer)
			if err != nil {
				return err
			}
			return f.print(d.Out, judge(f))
		})
	}
	return d.WithClient(cmd)
}

// facts are everything that a verdict is based on.
type facts struct {
	names    *shell.Names
	now      mvcc.Timestamp // the oracle's, taken after everything else: nothing seen is later
	table    string
	row      string
	observer string

	info  *pb.ObserverInfo // nil: the catalogue does not know the name
	state *observerJSON    // nil without info
	stats *pb.ObserverStatus

	cell   *pb.Cell   // observed
	rows   int        // entries of the row, of any column
	change *pb.Write  // the newest committed one of the observed cell, deletions too; nil: none
	ack    *pb.Write  // its start timestamp is the acknowledgment (§2.4)
	notify *pb.Notify // nil: nothing waits for this row
	blocks []obstacle // locks on the observed and the acknowledgment cell: a run waits for them
	// weak notifications of transactions that are not settled here yet: a run does not
	intents []obstacle
}

// obstacle is a lock or an intent, and the fate of its transaction.
type obstacle struct {
	lock     mvcc.LockInfo
	onAck    bool           // it is on the acknowledgment: a run's own, most often
	fate     string         // one of the fates
	commitTS mvcc.Timestamp // of fateCommitted
	until    mvcc.Timestamp // alive: the primary's expiry, which heartbeats move
}

// Fates of a transaction as its primary's cell tells them.
const (
	fateAlive      = "alive"
	fateExpired    = "expired" // whoever meets it rolls it back
	fateCommitted  = "committed"
	fateRolledBack = "rolled_back"
)

// gatherFacts reads catalogue, row and queues. The row is one view of its tablet; the
// rest is read before it, so that what the row shows is not explained by a state that
// came later. An empty table is the observer's.
func gatherFacts(ctx context.Context, s *shell.Session, table, row, observer string) (*facts, error) {
	names, err := s.Names(ctx)
	if err != nil {
		return nil, err
	}
	states, err := s.Transport.Observers(ctx)
	if err != nil {
		return nil, err
	}
	f := &facts{names: names, table: table, row: row, observer: observer}
	var found *pb.ObserverState
	for _, o := range states {
		if o.GetInfo().GetName() == observer {
			found, f.info, f.stats = o, o.Info, o.Status
		}
	}
	if table == "" { // its own
		if f.info == nil {
			return nil, noObserver(observer)
		}
		table, f.table = f.info.TableName, f.info.TableName
	}
	id, err := names.Table(table)
	if err != nil {
		return nil, err
	}
	// One request reads change, acknowledgment, notification and locks. A row never spans
	// two tablets, so they are of one moment and can be compared.
	ack := mvcc.Cell{Table: id, Row: row, Class: mvcc.ClassAck, Column: observer}
	cells := []mvcc.Cell{ack}
	if f.info != nil && f.info.TableName == table {
		cells = append(cells, mvcc.Cell{Table: id, Row: row, Column: string(f.info.Column)})
	}
	entries, err := inspect.Row(ctx, s.Client, id, row, 0, cells...)
	if err != nil {
		return nil, err
	}
	some, err := inspect.Row(ctx, s.Client, id, row, 1)
	if err != nil {
		return nil, err
	}
	f.rows = len(some)
	if f.now, err = s.Now(ctx); err != nil {
		return nil, err
	}
	if f.info == nil { // the row may still show that there was one
		f.ack = inspect.NewestWrite(entries, wire.CellPB(ack))
		return f, nil
	}
	state := newObserverJSON(found, f.now)
	f.state = &state
	return f, f.read(ctx, s, entries)
}

// read selects what concerns the observer from the row's history, and reads the fate of
// the transactions in the way.
func (f *facts) read(ctx context.Context, s *shell.Session, entries []*pb.HistoryEntry) error {
	f.cell = &pb.Cell{Table: f.info.Table, Row: []byte(f.row), Column: f.info.Column}
	ack := &pb.Cell{
		Table: f.info.Table, Row: []byte(f.row), Class: uint32(mvcc.ClassAck),
		Column: []byte(f.info.Name),
	}
	f.change, f.ack = inspect.NewestWrite(entries, f.cell), inspect.NewestWrite(entries, ack)
	for _, e := range entries {
		observed, acks := inspect.SameCell(e.Cell, f.cell), inspect.SameCell(e.Cell, ack)
		var o obstacle
		switch group := mvcc.Group(e.Group); {
		case group == mvcc.GroupNotify && observed:
			f.notify = e.Notify
			continue
		case group == mvcc.GroupLock && (observed || acks):
			o = obstacle{lock: lockInfo(&pb.WalkEntry{Cell: e.Cell, Lock: e.Lock}), onAck: acks}
		case group == mvcc.GroupIntent && observed:
			o = obstacle{lock: lockInfo(&pb.WalkEntry{Cell: e.Cell, Ts: e.Ts, Intent: e.Intent})}
		default:
			continue
		}
		if err := f.fate(ctx, s, &o); err != nil {
			return err
		}
		if o.lock.Intent {
			f.intents = append(f.intents, o)
		} else {
			f.blocks = append(f.blocks, o)
		}
	}
	return nil
}

// fate reads the state of a transaction from its primary's row. It decides nothing; a
// status check would roll an expired transaction back.
func (f *facts) fate(ctx context.Context, s *shell.Session, o *obstacle) error {
	primary, start := o.lock.Lock.Primary, uint64(o.lock.Lock.StartTS)
	entries, err := inspect.Row(ctx, s.Client, primary.Table, primary.Row, 0, primary)
	if err != nil {
		return err
	}
	// If nothing is found, the primary's prewrite may still arrive until this lock
	// expires.
	o.until = o.lock.Lock.Expiry
	at := wire.CellPB(primary)
	for _, e := range entries {
		if !inspect.SameCell(e.Cell, at) {
			continue
		}
		switch group := mvcc.Group(e.Group); {
		case (group == mvcc.GroupWrite || group == mvcc.GroupHistory) &&
			e.GetWrite().GetStartTs() == start:
			o.fate, o.commitTS = fateCommitted, mvcc.Timestamp(e.Write.CommitTs)
			return nil
		case group == mvcc.GroupRollback && e.Ts == start:
			o.fate = fateRolledBack
			return nil
		case group == mvcc.GroupLock && e.GetLock().GetStartTs() == start:
			o.until = mvcc.Timestamp(e.Lock.Expiry)
		}
	}
	// Expiry is judged by the oracle's time, as by a reader that meets the lock
	// (invariant 6 of design section 4).
	o.fate = fateAlive
	if o.until <= f.now {
		o.fate = fateExpired
	}
	return nil
}

// changedAt is when the cell last changed, acknowledged what the last run acknowledged; 0: never.
func (f *facts) changedAt() mvcc.Timestamp    { return mvcc.Timestamp(f.change.GetCommitTs()) }
func (f *facts) acknowledged() mvcc.Timestamp { return mvcc.Timestamp(f.ack.GetStartTs()) }

// due reports whether the observer has to run, as the framework decides it (§2.4); weak
// ones by the notification alone.
func (f *facts) due() bool {
	if f.info.Weak {
		return f.notify != nil
	}
	// The same test as the framework's: a replay counts as a change at its own timestamp.
	replay := f.notify.GetReplay() && mvcc.Timestamp(f.notify.GetTs()) > f.acknowledged()
	return replay || f.changedAt() > f.acknowledged()
}

// when writes a timestamp with its time and age.
func (f *facts) when(ts mvcc.Timestamp) string {
	return fmt.Sprintf("%d (%s UTC, %s ago)", ts, shell.Clock(ts), shell.Ago(ts, f.now))
}

// whyJSON is the answer in JSON. What is not there is left out.
type whyJSON struct {
	Verdict  string          `json:"verdict"`
	Sentence string          `json:"sentence"`
	Next     string          `json:"next,omitempty"`
	Table    string          `json:"table"`
	Row      shell.JSONBytes `json:"row"`
	Now      uint64          `json:"now"`
	Observer *observerJSON   `json:"observer,omitempty"`
	Change   *changeJSON     `json:"change,omitempty"`
	// the last acknowledged one; its start_ts is the acknowledgment
	Run          *changeJSON   `json:"run,omitempty"`
	Notification *entryJSON    `json:"notification,omitempty"`
	Locks        []obstacleOut `json:"locks,omitempty"`
}

// changeJSON is a write record.
type changeJSON struct {
	CommitTS uint64 `json:"commit_ts"`
	StartTS  uint64 `json:"start_ts"`
	Kind     string `json:"kind"` // put or delete
}

// entryJSON is a notification.
type entryJSON struct {
	TS       uint64 `json:"ts"`
	Attempts uint32 `json:"attempts"`
	ParkedTS uint64 `json:"parked_ts,omitempty"`
	Replay   bool   `json:"replay,omitempty"`
	Error    string `json:"error,omitempty"`
}

// obstacleOut is a lock or intent, with what its primary says.
type obstacleOut struct {
	On       string        `json:"on"` // change, ack or intent
	StartTS  uint64        `json:"start_ts"`
	Primary  *inspect.Cell `json:"primary"`
	State    string        `json:"state"` // alive, expired, committed or rolled_back
	CommitTS uint64        `json:"commit_ts,omitempty"`
	Until    uint64        `json:"until,omitempty"`
}

func newEntryJSON(n *pb.Notify) entryJSON {
	return entryJSON{n.GetTs(), n.GetAttempts(), n.GetParkedTs(), n.GetReplay(), n.GetError()}
}

// print prints the verdict, then the evidence.
func (f *facts) print(out *shell.Printer, v verdict) error {
	v.next = out.Advice(v.next, shell.Operand{What: "OBSERVER", Value: f.observer}, shell.Operand{What: "TABLE", Value: f.table},
		shell.Operand{What: "ROW", Value: f.row})
	if out.JSON() {
		return out.Object(f.json(v))
	}
	if err := out.Print("%s", v.sentence); err != nil {
		return err
	}
	if v.next != "" {
		if err := out.Print("  next: %s", v.next); err != nil {
			return err
		}
	}
	if err := out.Print(""); err != nil {
		return err
	}
	return out.Table(f.evidence())
}

// evidence returns what the verdict is based on, a line for each fact.
func (f *facts) evidence() *shell.Grid {
	g := &shell.Grid{}
	if f.info == nil {
		g.Add("observer", "not in the catalogue")
	} else {
		o := f.state
		kind := "strong"
		if o.Weak {
			kind = "weak"
		}
		g.Addf("observer", "%s, %s, on column %s of table %s", o.State, kind,
			shell.Printable(string(o.Column)), shell.Printable(o.Table))
		g.Add("queues", f.queues())
		if o.Table != f.table {
			return g // the row was not looked at
		}
	}
	switch {
	case f.info.GetWeak() || f.info == nil:
	case f.change == nil:
		g.Add("change", "none is committed")
	default:
		g.Addf("change", "%s committed at %s, begun at %d", inspect.KindName(f.change.Kind),
			f.when(f.changedAt()), f.change.StartTs)
	}
	switch {
	case f.ack != nil:
		g.Addf("last run", "began at %s, committed at %d", f.when(f.acknowledged()),
			f.ack.CommitTs)
	case !f.info.GetWeak():
		g.Add("last run", "none is acknowledged")
	}
	if f.info != nil {
		g.Add("notification", f.notification())
	}
	for _, o := range slices.Concat(f.blocks, f.intents) {
		g.Addf("lock", "%s: transaction %d, %s, primary %s", o.on(), o.lock.Lock.StartTS,
			fateText(&o, f), f.primary(&o))
	}
	g.Addf("now", "%d (%s UTC)", f.now, shell.Clock(f.now))
	return g
}

// queues describes what waits and runs, over all rows of the observer.
func (f *facts) queues() string {
	o := f.state
	text := fmt.Sprintf("%d waiting, %d parked", o.Waiting, o.Parked)
	if o.OldestTS != 0 {
		text += ", the oldest for " + shell.Ago(mvcc.Timestamp(o.OldestTS), f.now)
	}
	if f.stats == nil {
		return text + "; no node that has answered runs it"
	}
	text += fmt.Sprintf("; on all nodes %d running", o.Running)
	if o.Limit > 0 {
		text += fmt.Sprintf(" of at most %d", o.atOnce())
	}
	text += fmt.Sprintf(", %d queued, %d pausing after a failure", o.Queued, o.Backoff)
	if o.Stuck > 0 {
		text += fmt.Sprintf(", %d that do not return", o.Stuck)
	}
	return text + fmt.Sprintf("; %d runs, %d failures", o.Runs, o.Failures)
}

// notification describes the entry.
func (f *facts) notification() string {
	if f.notify == nil {
		return "none"
	}
	return fmt.Sprintf("%s, of %s", notifyText(f.notify), f.when(mvcc.Timestamp(f.notify.Ts)))
}

// primary returns the address of the obstacle's primary.
func (f *facts) primary(o *obstacle) string {
	p := wire.CellPB(o.lock.Lock.Primary)
	return fmt.Sprintf("%s/%s.%s", f.names.ByID(p.Table), shell.Shortened(string(p.Row), shell.ValueWidth/2),
		shell.ColumnText(p))
}

// on names the kind of cell that the obstacle is on.
func (o *obstacle) on() string {
	switch {
	case o.lock.Intent:
		return "intent"
	case o.onAck:
		return "ack"
	}
	return "change"
}

// json returns the answer for -o json.
func (f *facts) json(v verdict) whyJSON {
	out := whyJSON{
		Verdict: v.code, Sentence: v.sentence, Next: v.next, Table: f.table, Row: shell.JSONBytes(f.row),
		Now: uint64(f.now), Observer: f.state,
		Change: newChangeJSON(f.change), Run: newChangeJSON(f.ack),
	}
	if n := f.notify; n != nil {
		entry := newEntryJSON(n)
		out.Notification = &entry
	}
	for _, o := range slices.Concat(f.blocks, f.intents) {
		lock := obstacleOut{
			On: o.on(), StartTS: uint64(o.lock.Lock.StartTS), State: o.fate,
			CommitTS: uint64(o.commitTS),
			Primary:  inspect.NewCell(wire.CellPB(o.lock.Lock.Primary), f.names.ByID),
		}
		if o.fate == fateAlive || o.fate == fateExpired {
			lock.Until = uint64(o.until)
		}
		out.Locks = append(out.Locks, lock)
	}
	return out
}

// newChangeJSON converts a write record; nil stays nil.
func newChangeJSON(w *pb.Write) *changeJSON {
	if w == nil {
		return nil
	}
	return &changeJSON{w.CommitTs, w.StartTs, inspect.KindName(w.Kind)}
}
