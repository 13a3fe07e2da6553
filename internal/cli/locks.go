package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// lockCommand holds the commands about locks.
func (r *run) lockCommand() *cobra.Command {
	return group("lock", "List and resolve locks", r.example("lock ls", "lock resolve --all"), r.lockList(), r.lockResolve())
}

// lockList shows locks past their expiry too: nobody has met them yet, or nobody could
// resolve them.
func (r *run) lockList() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:     "ls [TABLE]",
		Aliases: []string{"list"},
		Short:   "List the locks and weak intents of transactions that are under way, or were abandoned",
		Example: r.example("lock ls", "lock ls bank -o json"),
		Args:    argsBetween(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.talk(cmd, func(ctx context.Context, s *session) error {
				return r.locks(ctx, s, args, limit)
			})
		},
	}
	addLimit(cmd, &limit, 1, "most entries")
	return r.withClient(cmd)
}

// lockJSON is a lock or weak intent in JSON.
type lockJSON struct {
	Cell    *cellJSON   `json:"cell"`
	Kind    string      `json:"kind"` // put, delete or intent
	StartTS uint64      `json:"start_ts"`
	Primary *cellJSON   `json:"primary"`
	Expiry  uint64      `json:"expiry"`
	Worker  *workerJSON `json:"worker"`
}

// lockPrinter prints locks as they come, tables at the end.
type lockPrinter struct {
	run   *run
	names *names
	grid  grid
	left  int
}

// locks walks the lock group of each table, and the intent group of each weak column,
// where intents can be.
func (r *run) locks(ctx context.Context, s *session, args []string, limit int) error {
	names, err := loadNames(ctx, s)
	if err != nil {
		return err
	}
	catalogue, err := s.transport.Catalogue(ctx)
	if err != nil {
		return err
	}
	tables, err := names.chosen(args)
	if err != nil {
		return err
	}
	p := &lockPrinter{run: r, names: names, left: limit}
	p.grid.add("TABLE", "ROW", "COLUMN", "KIND", "STARTED AT", "PRIMARY", "UNTIL", "BY")
	for _, table := range tables {
		for _, g := range lockGroups(catalogue, table) {
			if more, err := p.all(ctx, s, g.group, table, g.column); err != nil || !more {
				return err
			}
		}
	}
	return p.finish()
}

// all prints one group of one table; more is false once the limit is reached, and
// everything is printed then.
func (p *lockPrinter) all(ctx context.Context, s *session, group mvcc.Group, table mvcc.TableID, column string) (more bool, err error) {
	for e, err := range s.client.WalkColumn(ctx, group, table, column) {
		if err != nil {
			return false, err
		}
		if p.left <= 0 {
			p.run.cut(len(p.grid.rows) - 1)
			return false, p.finish()
		}
		p.left--
		if err := p.one(e); err != nil {
			return false, err
		}
	}
	return true, nil
}

// one prints a lock or an intent.
func (p *lockPrinter) one(e *pb.WalkEntry) error {
	l := newLockJSON(e, p.names)
	if p.run.output == outputJSON {
		p.grid.add("") // counted
		return p.run.object(l)
	}
	p.grid.add(append(p.run.lockLine(e, &l, p.names), fmt.Sprint(l.Expiry), workerText(lockWorker(e)))...)
	return nil
}

// newLockJSON converts an entry of a walk.
func newLockJSON(e *pb.WalkEntry, names *names) lockJSON {
	l := lockJSON{Cell: newCellJSON(e.Cell, names), Worker: newWorkerJSON(lockWorker(e))}
	if i := e.GetIntent(); i != nil {
		l.Kind, l.StartTS, l.Expiry, l.Primary = "intent", e.Ts, i.Expiry, newCellJSON(i.Primary, names)
		return l
	}
	lock := e.GetLock()
	l.Kind, l.StartTS, l.Expiry = kindName(lock.GetKind()), lock.GetStartTs(), lock.GetExpiry()
	l.Primary = newCellJSON(lock.GetPrimary(), names)
	return l
}

// lockWorker is who wrote a lock or an intent.
func lockWorker(e *pb.WalkEntry) *pb.Worker {
	if i := e.GetIntent(); i != nil {
		return i.Worker
	}
	return e.GetLock().GetWorker()
}

// lockLine is the part of a table's line that says which lock it is.
func (r *run) lockLine(e *pb.WalkEntry, l *lockJSON, names *names) []string {
	primary := e.GetLock().GetPrimary()
	if i := e.GetIntent(); i != nil {
		primary = i.Primary
	}
	at := "itself"
	if !sameCell(e.Cell, primary) {
		at = (&historyView{names: names}).address(e.Cell, primary)
	}
	return []string{
		l.Cell.Table, shortened(string(e.GetCell().GetRow()), valueWidth/2), columnText(e.Cell), l.Kind, fmt.Sprint(l.StartTS), at,
	}
}

// finish prints the table; in JSON everything is out already.
func (p *lockPrinter) finish() error {
	if p.run.output == outputJSON {
		return nil
	}
	return p.grid.write(p.run.Stdout)
}

// chosen is the table named in args, or all of them, meta's own not among them.
func (n *names) chosen(args []string) ([]mvcc.TableID, error) {
	if len(args) > 0 {
		id, err := n.table(args[0])
		return []mvcc.TableID{id}, err
	}
	return slices.Sorted(maps.Values(n.ids)), nil
}
