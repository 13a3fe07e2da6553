package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// whyCommand answers the commonest question about observers. It reads what is stored and
// what the answering node knows, and changes nothing: a lock that has expired is told of
// and left.
func (r *run) whyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why TABLE ROW OBSERVER",
		Short: "Say why an observer did or did not run for a row",
		Long: `Say in one sentence why an observer did or did not run for a row, what to do about it, and what that is concluded from:
the observer's state, the newest change of the observed cell, the acknowledgment of the last run, the notification,
locks in the way with what has become of their transactions, and the node's queues.

It only reads. With -o json it is one object; "verdict" is one of:
` + strings.NewReplacer(", "+whyParked, ",\n"+whyParked, ", "+whyFailing, ",\n"+whyFailing).Replace(verdictList()) + ".",
		Example: r.example("why bank bob count", "why bank bob count -o json"),
		Args:    argsBetween(3, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			row, err := r.input.bytes(args[1])
			if err != nil {
				return err
			}
			return r.talk(cmd, func(ctx context.Context, s *session) error {
				f, err := gatherFacts(ctx, s, args[0], row, args[2])
				if err != nil {
					return err
				}
				return r.showWhy(f, judge(f))
			})
		},
	}
	return r.withInput(r.withClient(cmd))
}

// facts are all that a verdict rests on.
type facts struct {
	names    *names
	now      mvcc.Timestamp // the oracle's, taken after everything else: nothing seen is later
	table    string
	row      string
	observer string

	info  *pb.ObserverInfo // nil: the catalogue does not know the name
	state *observerJSON    // nil without info
	stats *pb.ObserverStatus

	cell    *pb.Cell   // observed
	rows    int        // entries of the row, of any column
	change  *pb.Write  // the newest committed one of the observed cell, deletions too; nil: none
	ack     *pb.Write  // its start timestamp is the acknowledgment (§2.4)
	notify  *pb.Notify // nil: nothing waits for this row
	blocks  []obstacle // locks on the observed and the acknowledgment cell: a run waits for them
	intents []obstacle // weak notifications of transactions that are not settled here yet: a run does not
}

// obstacle is a lock or an intent, and what has become of its transaction.
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
// came later.
func gatherFacts(ctx context.Context, s *session, table, row, observer string) (*facts, error) {
	names, err := loadNames(ctx, s)
	if err != nil {
		return nil, err
	}
	id, err := names.table(table)
	if err != nil {
		return nil, err
	}
	states, err := s.transport.Observers(ctx)
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
	// One message reads change, acknowledgment, notification and locks: a row never spans
	// two tablets, so they are of one moment and can be weighed against each other.
	ack := mvcc.Cell{Table: id, Row: row, Class: mvcc.ClassAck, Column: observer}
	cells := []mvcc.Cell{ack}
	if f.info != nil && f.info.TableName == table {
		cells = append(cells, mvcc.Cell{Table: id, Row: row, Column: string(f.info.Column)})
	}
	entries, err := rowHistory(ctx, s, id, row, 0, cells...)
	if err != nil {
		return nil, err
	}
	some, err := rowHistory(ctx, s, id, row, 1)
	if err != nil {
		return nil, err
	}
	f.rows = len(some)
	if f.now, err = s.now(ctx); err != nil {
		return nil, err
	}
	if f.info == nil { // the row may still tell that there was one
		f.ack = newestWrite(entries, &pb.Cell{Table: uint32(id), Row: []byte(row), Class: uint32(mvcc.ClassAck), Column: []byte(observer)})
		return f, nil
	}
	state := newObserverJSON(found, f.now)
	f.state = &state
	return f, f.read(ctx, s, entries)
}

// read takes out of the row's history what concerns the observer, and asks after the
// transactions in the way.
func (f *facts) read(ctx context.Context, s *session, entries []*pb.HistoryEntry) error {
	f.cell = &pb.Cell{Table: f.info.Table, Row: []byte(f.row), Column: f.info.Column}
	ack := &pb.Cell{Table: f.info.Table, Row: []byte(f.row), Class: uint32(mvcc.ClassAck), Column: []byte(f.info.Name)}
	f.change, f.ack = newestWrite(entries, f.cell), newestWrite(entries, ack)
	for _, e := range entries {
		observed, acks := sameCell(e.Cell, f.cell), sameCell(e.Cell, ack)
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

// fate finds out what has become of a transaction, from its primary's row, without
// deciding anything (a status check would roll an expired one back).
func (f *facts) fate(ctx context.Context, s *session, o *obstacle) error {
	primary, start := o.lock.Lock.Primary, uint64(o.lock.Lock.StartTS)
	entries, err := rowHistory(ctx, s, primary.Table, primary.Row, 0, primary)
	if err != nil {
		return err
	}
	// Where nothing is found the primary's prewrite may still come, until the lock's own
	// time is over.
	o.until = o.lock.Lock.Expiry
	at := wire.CellPB(primary)
	for _, e := range entries {
		if !sameCell(e.Cell, at) {
			continue
		}
		switch group := mvcc.Group(e.Group); {
		case (group == mvcc.GroupWrite || group == mvcc.GroupHistory) && e.GetWrite().GetStartTs() == start:
			o.fate, o.commitTS = fateCommitted, mvcc.Timestamp(e.Write.CommitTs)
			return nil
		case group == mvcc.GroupRollback && e.Ts == start:
			o.fate = fateRolledBack
			return nil
		case group == mvcc.GroupLock && e.GetLock().GetStartTs() == start:
			o.until = mvcc.Timestamp(e.Lock.Expiry)
		}
	}
	// By the oracle's time, as whoever meets the lock decides (invariant 6 of design section 4).
	o.fate = fateAlive
	if o.until <= f.now {
		o.fate = fateExpired
	}
	return nil
}

// rowHistory reads what a row holds, or some cells of it, as it is stored; limit 0 is the
// tablet's own. A row may hold more than one answer: a conclusion from what is not there
// has to ask for the cell.
func rowHistory(ctx context.Context, s *session, table mvcc.TableID, row string, limit int, only ...mvcc.Cell) ([]*pb.HistoryEntry, error) {
	request := &pb.HistoryRequest{Table: uint32(table), Row: []byte(row), Limit: uint32(max(limit, 0)), Cells: wire.CellsPB(only)}
	answer, _, err := s.client.Send(ctx, wire.Position{Table: table, Row: row}, &pb.TabletRequest{Op: &pb.TabletRequest_History{History: request}})
	if err != nil {
		return nil, err
	}
	if answer.GetHistory() == nil {
		return nil, errNoAnswer
	}
	return answer.GetHistory().Entries, nil
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
	return fmt.Sprintf("%d (%s UTC, %s ago)", ts, clock(ts), ago(ts, f.now))
}
