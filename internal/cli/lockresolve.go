package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// resolveFlags are the flags of lock resolve.
type resolveFlags struct {
	all, force, yes bool
	// olderThan is by the oracle's time, from the start timestamp. It keeps --all from
	// asking after every transaction that just happens to be under way.
	olderThan time.Duration
}

// lockResolve does by hand what every reader that meets a lock does: nothing but --force
// can break a transaction by it.
func (r *run) lockResolve() *cobra.Command {
	f := &resolveFlags{}
	cmd := &cobra.Command{
		Use:   "resolve {TABLE ROW [COLUMN] | --all}",
		Short: "Get abandoned locks out of the way, as their primaries decide",
		Long: `Settle locks and weak intents as every reader does that meets them: the primary's cell tells whether the transaction has
committed. If it has, its locks are rolled forward; if not, and its time is over, they are rolled back. A transaction
that is alive is left alone, and said so; the exit code is then 1.

--all goes through all tables, and leaves what is younger than --older-than.

--force rolls a live transaction back at its primary. Whoever runs it gets an error from its commit and has to do its
work again; nothing is torn, since it is the primary that decides either way. It wants --yes.`,
		Example: r.example("lock resolve bank bob", "lock resolve bank bob balance", "lock resolve --all --older-than 1m",
			"lock resolve bank bob --force --yes"),
		Args: argsBetween(0, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.all && len(args) > 0, !f.all && len(args) < 2:
				return usagef(cmd, "name TABLE and ROW, or give --all")
			case f.force && !f.yes:
				return usagef(cmd, "--force makes the commits of live transactions fail: whoever runs them has to begin anew; give --yes if that is meant")
			case f.olderThan < 0:
				return usagef(cmd, "--older-than is a duration such as 10s")
			}
			// Long: a repository may have many abandoned locks after the death of a large loader.
			target, err := r.input.all(args[min(1, len(args)):])
			if err != nil {
				return err
			}
			return r.talkLong(cmd, func(ctx context.Context, s *session) error {
				return r.resolve(ctx, s, f, args, target)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.all, "all", false, "all locks of all tables")
	flags.DurationVar(&f.olderThan, "older-than", 10*time.Second, "with --all: leave transactions that began less than so long ago")
	flags.BoolVar(&f.force, "force", false, "roll live transactions back too: their commits fail")
	flags.BoolVar(&f.yes, "yes", false, "--force is meant")
	return r.withInput(r.withClient(cmd))
}

// resolvedJSON is what became of one lock.
type resolvedJSON struct {
	lockJSON
	// Outcome is committed or rolled_back (resolved), alive (left), or gone: somebody
	// else was faster.
	Outcome  string `json:"outcome"`
	CommitTS uint64 `json:"commit_ts,omitempty"`
	Forced   bool   `json:"forced,omitempty"`
	Left     bool   `json:"left,omitempty"` // to the nodes: it is an acknowledgment's
}

// resolver is one run of the command.
type resolver struct {
	r     *run
	s     *session
	names *names
	now   mvcc.Timestamp // at its beginning
	flags *resolveFlags
	grid  grid

	resolved, alive, young int
}

// resolve finds the locks and settles them one after the other; locks of one transaction
// ask its primary once.
func (r *run) resolve(ctx context.Context, s *session, f *resolveFlags, args, target []string) error {
	names, err := loadNames(ctx, s)
	if err != nil {
		return err
	}
	catalogue, err := s.transport.Catalogue(ctx)
	if err != nil {
		return err
	}
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	v := &resolver{r: r, s: s, names: names, now: now, flags: f}
	v.grid.add("TABLE", "ROW", "COLUMN", "KIND", "STARTED AT", "PRIMARY", "OUTCOME")
	if f.all {
		err = v.everything(ctx, catalogue)
	} else {
		err = v.row(ctx, catalogue, args[0], target)
	}
	if writing := r.finish(&v.grid); err == nil {
		err = writing
	}
	if err != nil {
		return err
	}
	return v.verdict()
}

// everything goes through the locks of all tables, and the intents of all weak columns.
func (v *resolver) everything(ctx context.Context, catalogue *pb.Catalogue) error {
	for _, table := range slices.Sorted(maps.Values(v.names.ids)) {
		for _, g := range lockGroups(catalogue, table) {
			for e, err := range v.s.client.WalkColumn(ctx, g.group, table, g.column) {
				if err != nil {
					return err
				}
				if age := v.now.Millis() - lockInfo(e).Lock.StartTS.Millis(); age < v.flags.olderThan.Milliseconds() {
					v.young++
					continue
				}
				if err := v.one(ctx, e); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// row takes the locks of one row, or of one column of it.
func (v *resolver) row(ctx context.Context, catalogue *pb.Catalogue, name string, target []string) error {
	table, err := v.names.table(name)
	if err != nil {
		return err
	}
	for _, g := range lockGroups(catalogue, table) {
		for e, err := range v.s.client.WalkFrom(ctx, g.group, wire.Position{Table: table, Row: target[0]}, g.column) {
			if err != nil {
				return err
			}
			if string(e.GetCell().GetRow()) != target[0] {
				break
			}
			if len(target) > 1 && rawColumn(e.GetCell()) != target[1] {
				continue
			}
			if err := v.one(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// rawColumn is a column's name as it is given on the command line; an acknowledgment
// column is called ack_O.
func rawColumn(c *pb.Cell) string {
	if mvcc.Class(c.GetClass()) == mvcc.ClassAck {
		return "ack_" + string(c.GetColumn())
	}
	return string(c.GetColumn())
}

// one settles one lock.
func (v *resolver) one(ctx context.Context, e *pb.WalkEntry) error {
	out := resolvedJSON{lockJSON: newLockJSON(e, v.names)}
	l := lockInfo(e)
	// The library's own way (invariants 3 and 6 of design section 4): ask the primary, by
	// the oracle's time, then carry its decision here. It never guesses, so it is safe
	// whatever else happens to the transaction meanwhile.
	done, err := v.s.client.ResolveLock(ctx, l)
	if err == nil && !done && v.flags.force {
		// Decide first, then settle this lock by that decision, as if it had always been so.
		out.Forced = true
		if err = v.force(ctx, l); err == nil {
			done, err = v.s.client.ResolveLock(ctx, l)
		}
	}
	commitTS, known := v.s.client.Decided(l.Lock.StartTS)
	if errors.Is(err, percolator.ErrPermission) && l.Cell.Class == mvcc.ClassAck && known {
		// It is decided. Nodes alone roll an acknowledgment forward, and their sweepers do.
		out.Left, err = true, nil
	}
	if err != nil {
		return fmt.Errorf("lock of transaction %d: %w", l.Lock.StartTS, err)
	}
	out.Outcome = "alive"
	switch {
	case out.Left:
		out.Outcome, out.CommitTS = "committed", uint64(commitTS)
	case done:
		// Decided tells what the client has just learned; nothing, if the memory was
		// emptied in between.
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
	if v.r.output == outputJSON {
		return v.r.object(out)
	}
	v.grid.add(append(v.r.lockLine(e, &out.lockJSON, v.names), v.text(&out, l))...)
	return nil
}

// force has a live transaction decided against, at its primary: the one place where that is safe.
func (v *resolver) force(ctx context.Context, l mvcc.LockInfo) error {
	at := wire.Position{Table: l.Lock.Primary.Table, Row: l.Lock.Primary.Row}
	// Rolling back a secondary alone would tear the transaction if its primary commits
	// (invariant 3): only the primary.
	rollback := &pb.RollbackRequest{StartTs: uint64(l.Lock.StartTS), Cells: []*pb.Cell{wire.CellPB(l.Lock.Primary)}}
	answer, _, err := v.s.client.Send(ctx, at, &pb.TabletRequest{Op: &pb.TabletRequest_Rollback{Rollback: rollback}})
	if err != nil {
		return err
	}
	switch status := answer.GetMutation().GetStatus(); status {
	case pb.Status_STATUS_OK, pb.Status_STATUS_COMMITTED, pb.Status_STATUS_LOCKED, pb.Status_STATUS_UNKNOWN:
		// Committed: it was faster, and is rolled forward. Locked, unknown: not to be
		// decided now; it stays alive.
		return nil
	default:
		return fmt.Errorf("%w: rollback answered %v", errNoAnswer, status)
	}
}

// text is the outcome for people.
func (v *resolver) text(out *resolvedJSON, l mvcc.LockInfo) string {
	if out.Left {
		return fmt.Sprintf("committed at %d, left to the nodes: it acknowledges a change", out.CommitTS)
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
		if left := l.Lock.Expiry.Millis() - v.now.Millis(); left > 0 {
			return fmt.Sprintf("alive, left alone: at least %v more", time.Duration(left)*time.Millisecond)
		}
		return "alive, left alone: its primary has more time"
	}
	return "gone"
}

// verdict sums up; live transactions that were left make it a failure, so that a script notices.
func (v *resolver) verdict() error {
	if v.r.output == outputTable {
		v.r.note("%d resolved, %d alive, %d too young", v.resolved, v.alive, v.young)
	}
	if v.alive == 0 {
		return nil // too young is no failure: it was asked for
	}
	return &hintError{
		err:  fmt.Errorf("%d locks belong to live transactions and were left alone", v.alive),
		hint: "try again once they have ended or expired; --force --yes rolls them back, and their owners' commits fail",
	}
}

// lockGroup is a group of keys that may hold locks or intents.
type lockGroup struct {
	group  mvcc.Group
	column string // of intents
}

// lockGroups are a table's: its locks, and the intents of each of its weak columns.
func lockGroups(catalogue *pb.Catalogue, table mvcc.TableID) []lockGroup {
	groups := []lockGroup{{group: mvcc.GroupLock}}
	for _, o := range catalogue.GetObservers() {
		if o.Table == uint32(table) && o.Weak {
			groups = append(groups, lockGroup{mvcc.GroupIntent, string(o.Column)})
		}
	}
	return groups
}

// lockInfo converts an entry of a walk to what the coordinator understands.
func lockInfo(e *pb.WalkEntry) mvcc.LockInfo {
	// The value is left out: resolution does not look at it.
	if i := e.GetIntent(); i != nil {
		return mvcc.LockInfo{Cell: wire.Cell(e.Cell), Intent: true, Lock: mvcc.Lock{
			StartTS: mvcc.Timestamp(e.Ts), Primary: wire.Cell(i.Primary), Expiry: mvcc.Timestamp(i.Expiry), Worker: wire.Worker(i.Worker),
		}}
	}
	l := e.GetLock()
	return mvcc.LockInfo{Cell: wire.Cell(e.Cell), Lock: mvcc.Lock{
		StartTS: mvcc.Timestamp(l.GetStartTs()), Primary: wire.Cell(l.GetPrimary()), Expiry: mvcc.Timestamp(l.GetExpiry()),
		Worker: wire.Worker(l.GetWorker()),
	}}
}
