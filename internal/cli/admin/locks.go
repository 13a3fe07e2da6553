package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// The commands for locks walk the lock groups of the tablets and the intent groups of weak columns.
// Listing changes nothing; resolving follows the protocol of transaction coordinators.

// LockCommand groups the commands for locks.
func LockCommand(d *shell.Deps) *cobra.Command {
	return shell.Group("lock", "List and resolve locks", "lock ls\nlock resolve --all",
		lockList(d), lockResolve(d))
}

// lockList also lists expired locks: no reader has encountered them yet, or none could resolve
// them.
func lockList(d *shell.Deps) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:     "ls [TABLE]",
		Short:   "List the locks and weak intents of running and abandoned transactions",
		Example: "lock ls\nlock ls bank -o json",
	}
	shell.AddLimit(cmd, &limit, 1, "maximum number of entries")
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, args []string) error {
		return listLocks(ctx, s, args, limit)
	})
}

// lockJSON is a lock or weak intent in JSON.
type lockJSON struct {
	Cell    *inspect.Cell   `json:"cell"`
	Kind    string          `json:"kind"` // put, delete, lock or intent
	StartTS uint64          `json:"start_ts"`
	Primary *inspect.Cell   `json:"primary"`
	Expiry  uint64          `json:"expiry"`
	Worker  *inspect.Worker `json:"worker"`
}

// listLocks prints the locks of the tables in args, or of all.
func listLocks(ctx context.Context, s *shell.Session, args []string, limit int) error {
	names, catalogue, err := s.Schema(ctx)
	if err != nil {
		return err
	}
	tables, err := names.Chosen(args)
	if err != nil {
		return err
	}
	list := s.Out.Listing("TABLE, ROW, COLUMN, KIND, STARTED AT, PRIMARY, UNTIL, BY")
	for e, err := range storedLocks(ctx, s, catalogue, tables) {
		if err != nil {
			return err
		}
		if list.Entries == limit {
			s.Out.NoteCut(limit)
			break
		}
		l, line := newLockJSON(e, names)
		line = append(line, l.Expiry, inspect.WorkerText(lockOf(e).GetWorker()))
		list.Add(l, line...)
	}
	return list.End()
}

// storedLocks walks the locks and intents of tables.
func storedLocks(ctx context.Context, s *shell.Session, catalogue *pb.Catalogue,
	tables []mvcc.TableID) iter.Seq2[*pb.WalkEntry, error] {
	return func(yield func(*pb.WalkEntry, error) bool) {
		for _, table := range tables {
			for _, g := range lockGroups(catalogue, table) {
				for e, err := range s.Client.WalkColumn(ctx, g.group, g.column) {
					if !yield(e, err) || err != nil {
						return
					}
				}
			}
		}
	}
}

// lockGroup is what one walk lists: the locks of a table, or the intents of one of its weak columns.
type lockGroup struct {
	group  mvcc.Group
	column mvcc.ObservedColumn // for intents; for locks only its table counts
}

// lockGroups returns the groups of a table: its locks, and the intents of each of its
// weak columns.
func lockGroups(catalogue *pb.Catalogue, table mvcc.TableID) []lockGroup {
	groups := []lockGroup{{mvcc.GroupLock, mvcc.ObservedColumn{Table: table}}}
	for _, o := range catalogue.GetObservers() {
		g := lockGroup{mvcc.GroupIntent, wire.ColumnOf(o)}
		if g.column.Table == table && o.Weak && !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	return groups
}

// lockOf returns the lock of an entry of a walk, or its intent as a lock without a kind.
func lockOf(e *pb.WalkEntry) *pb.Lock {
	if i := e.GetIntent(); i != nil {
		return &pb.Lock{StartTs: e.Ts, Primary: i.Primary, Expiry: i.Expiry, Worker: i.Worker}
	}
	return e.GetLock()
}

// newLockJSON converts an entry of a walk. line contains the columns of the listing that identify the
// lock.
func newLockJSON(e *pb.WalkEntry, names *inspect.Names) (out lockJSON, line []any) {
	lock := lockOf(e)
	out = lockJSON{
		Cell: inspect.NewCell(e.Cell, names), Kind: inspect.KindName(lock.GetKind()),
		StartTS: lock.GetStartTs(),
		Primary: inspect.NewCell(lock.GetPrimary(), names), Expiry: lock.GetExpiry(),
		Worker: inspect.NewWorker(lock.GetWorker()),
	}
	if e.Intent != nil {
		out.Kind = "intent"
	}
	primary := "itself"
	if !inspect.SameCell(e.Cell, lock.GetPrimary()) {
		primary = names.Address(e.Cell, lock.GetPrimary())
	}
	return out, []any{
		names.ByID(e.Cell.GetTable()), inspect.Shortened(string(e.Cell.GetRow()), inspect.ValueWidth/2),
		inspect.ColumnText(e.Cell),
		out.Kind, out.StartTS, primary,
	}
}

// resolver is one run of lock resolve: its flags, the schema and time read at the start, and the
// outcomes of the locks.
type resolver struct {
	all, force, yes bool
	// olderThan is the minimum age of the locks that --all resolves, by the oracle's time from the
	// start timestamp of their transaction.
	olderThan time.Duration

	*shell.Session
	tables *inspect.Names
	since  mvcc.Timestamp // the oracle's time when lock resolve began
	list   *shell.Listing

	resolved, alive, young int

	settled func(*resolvedJSON) // called with the outcome of each lock; may be nil
}

// lockResolve resolves locks like a reader that encounters them. Only --force can make a live
// transaction fail.
func lockResolve(d *shell.Deps) *cobra.Command {
	v := &resolver{}
	cmd := &cobra.Command{
		Use:   "resolve {TABLE ROW [COLUMN] | --all}",
		Short: "Resolve abandoned locks as their primaries decide",
		Long: `Resolve locks and weak intents as a reader does that encounters them: the primary's
cell decides whether the transaction has committed. If it has, its locks are rolled forward; if
not, and it has expired, they are rolled back. Live transactions are reported and left
unchanged; the exit code is then 1.

--all resolves locks of all tables that are at least as old as --older-than.

--force decides a live transaction. One that commits asynchronously, and has locked all of its
cells, is committed; any other one is rolled back at its primary or, if it commits asynchronously,
at a cell without a lock: its commit returns an error and its client must retry. The transaction
stays atomic either way. --force requires --yes.`,
		Example: "lock resolve bank bob\n" +
			"lock resolve bank bob balance\n" +
			"lock resolve --all --older-than 1m\n" +
			"lock resolve bank bob --force --yes",
	}
	shell.AddInputArgs(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&v.all, "all", false, "all locks of all tables")
	flags.DurationVar(&v.olderThan, "older-than", 10*time.Second,
		"with --all: minimum age of a transaction")
	flags.BoolVar(&v.force, "force", false,
		"decide live transactions too: most are rolled back, and their commits fail")
	flags.BoolVar(&v.yes, "yes", false, "confirm --force")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case v.all && len(args) > 0, !v.all && len(args) < 2:
			return shell.Usagef(cmd, "name TABLE and ROW, or give --all")
		case v.force && !v.yes:
			return shell.Usagef(cmd, "--force decides live transactions: the commits of most fail, and "+
				"their clients must retry; give --yes to confirm")
		case v.olderThan < 0:
			return shell.Usagef(cmd, "--older-than %v is negative: give an age such as 10s",
				v.olderThan)
		}
		// Without --timeout: a repository may have many abandoned locks after the death of a large
		// loader.
		return d.Conn.RunLong(cmd, func(ctx context.Context, s *shell.Session) error {
			v.Session = s
			return v.run(ctx, args)
		})
	}
	return d.WithClient(cmd)
}

// resolvedJSON is the outcome of one lock.
type resolvedJSON struct {
	lockJSON
	// Outcome is committed or rolled_back (resolved, unless Left), alive (unchanged), or gone:
	// resolved, but the client no longer remembers the decision.
	Outcome  string `json:"outcome"`
	CommitTS uint64 `json:"commit_ts,omitempty"`
	Forced   bool   `json:"forced,omitempty"`
	Left     bool   `json:"left,omitempty"` // an acknowledgment's lock, which nodes resolve
}

// run finds the locks and resolves them one after the other. It asks the primary of a decided
// transaction once, and that of a live one for each of its locks.
func (v *resolver) run(ctx context.Context, args []string) error {
	names, catalogue, err := v.Schema(ctx)
	if err != nil {
		return err
	}
	v.tables = names
	if v.since, err = v.Client.Timestamp(ctx); err != nil {
		return err
	}
	v.list = v.Out.Listing("TABLE, ROW, COLUMN, KIND, STARTED AT, PRIMARY, OUTCOME")
	if v.all {
		err = v.resolveAll(ctx, catalogue)
	} else {
		err = v.resolveRow(ctx, catalogue, args[0], args[1:])
	}
	if err := cmp.Or(err, v.list.End()); err != nil {
		return err
	}
	return v.verdict()
}

// resolveAll resolves the locks of all tables and the intents of all weak columns. It only counts
// those younger than olderThan.
func (v *resolver) resolveAll(ctx context.Context, catalogue *pb.Catalogue) error {
	tables, _ := v.tables.Chosen(nil)
	for e, err := range storedLocks(ctx, v.Session, catalogue, tables) {
		if err != nil {
			return err
		}
		age := v.since.Millis() - mvcc.Timestamp(lockOf(e).GetStartTs()).Millis()
		if age < v.olderThan.Milliseconds() {
			v.young++
			continue
		}
		if err := v.settle(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// resolveRow resolves the locks of one row, or of one of its columns; the acknowledgment
// column of observer O is called ack_O.
func (v *resolver) resolveRow(ctx context.Context, catalogue *pb.Catalogue, name string,
	target []string) error {
	table, err := v.tables.Table(name)
	if err != nil {
		return err
	}
	for _, g := range lockGroups(catalogue, table) {
		for e, err := range v.Client.WalkFrom(ctx, g.group, g.column, target[0]) {
			if err != nil {
				return err
			}
			if string(e.GetCell().GetRow()) != target[0] {
				break
			}
			if len(target) > 1 && inspect.AckPrefix(e.Cell)+string(e.Cell.GetColumn()) != target[1] {
				continue
			}
			if err := v.settle(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle resolves one lock and lists the outcome.
func (v *resolver) settle(ctx context.Context, e *pb.WalkEntry) error {
	lock, line := newLockJSON(e, v.tables)
	out := resolvedJSON{lockJSON: lock, Outcome: "alive"}
	l := mvcc.LockInfo{Cell: wire.Cell(e.Cell), Intent: e.Intent != nil, Lock: wire.Lock(lockOf(e))}
	// Resolve the lock as a reader does: ask the primary, by the oracle's time, then apply its
	// decision here. The primary alone decides, so this is safe whatever the transaction does
	// concurrently.
	done, err := v.Client.ResolveLock(ctx, l)
	if err == nil && !done && v.force {
		out.Forced = true
		done, err = v.rollBack(ctx, l)
	}
	commitTS, known := v.Client.Decided(l.Lock.StartTS)
	if errors.Is(err, percolator.ErrPermission) && l.Cell.Class == mvcc.ClassAck && known {
		// The transaction is decided, but only nodes may roll an acknowledgment forward.
		// Their sweepers do.
		out.Left, err = true, nil
	}
	if err != nil {
		return coded.Errorf("", "resolve a lock of transaction %d: %w", l.Lock.StartTS, err)
	}
	switch {
	case out.Left:
		out.Outcome, out.CommitTS = "committed", uint64(commitTS)
	case done:
		// Decided reports the decision just received, unless the client's cache was emptied since.
		out.Outcome, out.CommitTS = "rolled_back", uint64(commitTS)
		if commitTS != 0 {
			out.Outcome = "committed"
		}
		if !known {
			out.Outcome = "gone"
		}
		v.resolved++
	default:
		v.alive++
	}
	if v.settled != nil {
		v.settled(&out)
	}
	v.list.Add(out, append(line, v.text(&out, l))...)
	return nil
}

// rollBack rolls a live transaction back at its primary, the only cell where that is safe, and then
// resolves this lock by that decision. ForceLock decides a transaction that commits asynchronously,
// and may commit it.
func (v *resolver) rollBack(ctx context.Context, l mvcc.LockInfo) (resolved bool, err error) {
	at := wire.Position{Table: l.Lock.Primary.Table, Row: l.Lock.Primary.Row}
	// Roll back only the primary: rolling back a secondary alone would tear the transaction if its
	// primary commits.
	rollback := &pb.RollbackRequest{
		StartTs: uint64(l.Lock.StartTS), Cells: []*pb.Cell{wire.CellPB(l.Lock.Primary)},
	}
	answer, _, err := v.Client.Send(ctx, at,
		&pb.TabletRequest{Op: &pb.TabletRequest_Rollback{Rollback: rollback}})
	if err != nil {
		return false, err
	}
	switch status := answer.GetMutation().GetStatus(); status {
	case pb.Status_STATUS_OK, pb.Status_STATUS_COMMITTED, pb.Status_STATUS_LOCKED,
		pb.Status_STATUS_UNKNOWN:
		// Committed: the commit came first and is rolled forward. Locked, unknown: the transaction
		// is undecided and stays alive.
		return v.Client.ResolveLock(ctx, l)
	case pb.Status_STATUS_LIVE: // an asynchronous commit: all its cells decide, not the primary alone
		return v.Client.ForceLock(ctx, l)
	default:
		return false, coded.Errorf("", "%w: unexpected status of a rollback: %v", shell.ErrInvalidAnswer, status)
	}
}

// text returns the outcome for people.
func (v *resolver) text(out *resolvedJSON, l mvcc.LockInfo) string {
	if out.Left {
		return fmt.Sprintf("committed at %d, left to the nodes: only they resolve acknowledgments",
			out.CommitTS)
	}
	switch out.Outcome {
	case "committed":
		return fmt.Sprintf("rolled forward, committed at %d", out.CommitTS)
	case "rolled_back":
		if out.Forced {
			return "rolled back by force"
		}
		return "rolled back"
	case "alive":
		if left := l.Lock.Expiry.Millis() - v.since.Millis(); left > 0 {
			return fmt.Sprintf("alive, unchanged: at least %v left",
				time.Duration(left)*time.Millisecond)
		}
		return "alive, unchanged: its primary has not expired"
	}
	return "gone"
}

// verdict prints the totals. It fails if live transactions remain, so that a script notices.
func (v *resolver) verdict() error {
	if !v.Out.JSON() {
		v.Out.Note("%d resolved, %d alive, %d too young", v.resolved, v.alive, v.young)
	}
	if v.alive == 0 {
		return nil // too young is no failure: --older-than excludes them
	}
	return shell.WithHint(fmt.Errorf("%d locks belong to live transactions and were not resolved", v.alive),
		"try again once they have ended or expired; --force --yes decides them: most are rolled back, "+
			"and their owners' commits fail")
}
