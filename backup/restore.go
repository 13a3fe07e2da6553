package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/policy"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file restores tables. Each range of the full backup is restored by one worker, in
// the order of cells, so that the last cell that is there says how far an earlier run has
// come: nothing else is remembered. Workers share the tally and the limiter.

// RestoreOptions say what is restored.
type RestoreOptions struct {
	Options
	// Backup is the one whose chain is restored; default: the newest that covers At, of which
	// the location must have those of one cluster only.
	Backup string
	At     uint64 // the timestamp whose state is restored; default: the backup's
	// Tables maps tables of the backup to the names that they get; default: all, with theirs.
	Tables map[string]string
	// Policy restores the cluster's policy too, but for a login over HTTP, which it does not
	// take back.
	Policy bool
	// Settings is called with the settings of the policy of which the backup has others, once
	// they are set.
	Settings func([]Setting)
	// Notify marks observed cells, in the end, whose last change their observers had not seen
	// at At: they run. Without it nothing runs until a cell changes again.
	Notify bool
}

// Restored is what Restore has done.
type Restored struct {
	Backup  string
	At      uint64
	Tables  []string // as they are called now
	Before  []string // those among them that an earlier run had ended: nothing was written to them
	LeftOut []string // tables that were there at At, perhaps, and were dropped before the backup
	// Granted are the tables that have grants as the backup has them, Ungranted those of which
	// it does not say whether they had any: they are for all clients.
	Granted   []TableGrants
	Ungranted []string
	Records   int64
	Pending   int64 // timers that were set, for timers and weak notifications of the backup
	Notified  int64
}

// Restore writes the state at a timestamp into tables that are empty or not there. If it
// was interrupted, it goes on.
func Restore(ctx context.Context, c *txn.Client, l *Location, o RestoreOptions) (*Restored, error) {
	r := &restoring{work: newWork(c, l, o.Options), options: o}
	if err := r.find(ctx); err != nil {
		return nil, err
	}
	if err := r.choose(); err != nil {
		return nil, err
	}
	if err := r.allowed(ctx); err != nil {
		return nil, err
	}
	stop := r.reportJob(ctx, &pb.Job{
		Kind: "restore", Subject: "from " + r.result.Backup, Tables: r.result.Tables,
	})
	err := r.run(ctx)
	stop(err)
	if err != nil {
		return nil, err
	}
	return &r.result, nil
}

// run restores what was chosen.
func (r *restoring) run(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	if r.options.Policy {
		if err := r.policy(ctx); err != nil {
			return err
		}
	}
	if err := r.grant(ctx); err != nil {
		return err
	}
	if err := r.write(ctx); err != nil {
		return err
	}
	if err := r.pending(ctx); err != nil {
		return err
	}
	for _, t := range r.tables {
		if t.done {
			continue
		}
		if _, err := r.table(ctx, &pb.RestoreTableRequest{Name: t.to, Mark: r.mark, Finish: true}); err != nil {
			return err
		}
	}
	if r.options.Notify {
		return r.notify(ctx)
	}
	return nil
}

// restoring is a restore under way.
type restoring struct {
	*work
	options RestoreOptions
	chain   []*Manifest // the full backup first
	mark    *pb.RestoreMark
	tables  []target
	result  Restored
}

// target is one table of a restore.
type target struct {
	Table
	to     string
	id     uint32 // in this cluster
	chain  []*Manifest
	ranges []Range
	done   bool // an earlier run has ended it
}

// find finds the chain.
func (r *restoring) find(ctx context.Context) error {
	last, err := r.newest(ctx)
	if err != nil {
		return err
	}
	if r.chain, err = r.from.chain(ctx, last); err != nil {
		return err
	}
	at := r.options.At
	if at == 0 {
		at = last.At
	}
	if first := r.chain[0]; at < first.At || at > last.At {
		return coded.Errorf("", "%w: the backups cover the timestamps from %d (%s) to %d (%s), not %d",
			ErrNotFound, first.At, first.Time, last.At, last.Time, at)
	}
	for _, m := range r.chain {
		if err := m.covers(); err != nil {
			return err
		}
	}
	r.mark = &pb.RestoreMark{Source: last.Name + " of cluster " + last.Cluster, At: at}
	r.result.Backup, r.result.At = last.Name, at
	return nil
}

// newest returns the backup that is named, whatever else the location has; or the oldest
// that goes as far as At, or the newest.
func (r *restoring) newest(ctx context.Context) (last *Manifest, err error) {
	if name := r.options.Backup; name != "" {
		last, err = r.from.manifest(ctx, name)
		if err == nil && last == nil {
			err = coded.Errorf("", "%w: %s", ErrNotFound, name)
		}
		return last, err
	}
	all, err := r.from.whole(ctx)
	if err != nil {
		return nil, coded.Errorf("", "%w; another can be restored by its name", err)
	}
	for _, m := range all {
		if last == nil || r.options.At == 0 || last.At < r.options.At {
			last = m
		}
	}
	if last == nil {
		return nil, coded.Errorf("", "%w: there is no whole backup", ErrNotFound)
	}
	if slices.ContainsFunc(all, func(m *Manifest) bool {
		return m.Cluster != last.Cluster || !slices.Equal(chosen(m), chosen(last))
	}) {
		return nil, coded.Errorf("", "%w: there are backups of several clusters, or of different tables: name one of them",
			ErrNotFound)
	}
	return last, nil
}

// choose maps tables to targets.
func (r *restoring) choose() error {
	last := r.chain[len(r.chain)-1]
	wanted := r.options.Tables
	for _, t := range last.Tables {
		to, ok := wanted[t.Name]
		if len(wanted) > 0 && !ok {
			continue
		}
		if to == "" {
			to = t.Name
		}
		x := target{Table: t, to: to}
		// From the backup on in which it is for the first time.
		i := slices.IndexFunc(r.chain, func(m *Manifest) bool { return m.has(t.ID) })
		x.chain = r.chain[i:]
		if older := r.dropped()[t.Name]; older != "" {
			return coded.Errorf("", "%w %q was dropped and made anew since: the new one can be restored at timestamps from %d on; the older one %s",
				ErrTable, t.Name, x.chain[0].At, older)
		}
		for j := range x.chain[0].Files {
			if f := &x.chain[0].Files[j]; f.Table == t.ID {
				x.ranges = append(x.ranges, f.Range)
			}
		}
		r.tables = append(r.tables, x)
		r.result.Tables = append(r.result.Tables, to)
	}
	for name := range wanted {
		if !slices.ContainsFunc(r.tables, func(t target) bool { return t.Name == name }) {
			if older := r.dropped()[name]; older != "" {
				return coded.Errorf("", "%w %q was dropped before the backup %s: it can be restored %s", ErrTable, name,
					last.Name, older)
			}
			return coded.Errorf("", "%w %q is not in the backup %s", ErrTable, name, last.Name)
		}
	}
	if names := sortedSet(r.result.Tables); len(names) != len(r.result.Tables) {
		return coded.Errorf("", "%w: two tables would get one name", ErrTable)
	}
	// At an earlier timestamp there may have been tables that the last backup has not seen.
	if len(wanted) == 0 {
		for name := range r.dropped() {
			r.result.LeftOut = append(r.result.LeftOut, name)
		}
		slices.Sort(r.result.LeftOut)
	}
	return nil
}

// dropped returns the tables that may have been there at the timestamp that is restored and
// are not in the last backup, by name: at which timestamps each can be restored, and how.
func (r *restoring) dropped() map[string]string {
	out, last := map[string]string{}, r.chain[len(r.chain)-1]
	for i, m := range r.chain {
		// The next one tells what was there between this one and itself.
		if i+1 < len(r.chain) && r.chain[i+1].At <= r.mark.At {
			continue
		}
		for _, t := range m.Tables {
			if !last.has(t.ID) {
				first := slices.IndexFunc(r.chain, func(m *Manifest) bool { return m.has(t.ID) })
				out[t.Name] = fmt.Sprintf("at timestamps from %d to %d, from the backup %s",
					r.chain[first].At, m.At, m.Name)
			}
		}
	}
	return out
}

// policy restores the cluster's policy: what differs, but for what it must not lower.
func (r *restoring) policy(ctx context.Context) error {
	last := r.chain[len(r.chain)-1]
	if len(last.Policy) == 0 {
		return nil
	}
	to, err := last.policy()
	if err != nil {
		return err
	}
	have, err := r.client.Admin().ClusterPolicy(ctx, &pb.ClusterPolicyRequest{})
	if err != nil {
		return coded.Errorf("", "backup: read the cluster's policy: %w", err)
	}
	set, settings := different(have.GetPolicy(), to)
	if slices.ContainsFunc(settings, func(s Setting) bool { return !s.Kept }) {
		_, err = r.client.Admin().ClusterPolicy(ctx, &pb.ClusterPolicyRequest{Set: set})
		if err != nil {
			return coded.Errorf("", "backup: restore the cluster's policy: %w", err)
		}
	}
	if r.options.Settings != nil && len(settings) > 0 {
		r.options.Settings(settings)
	}
	return nil
}

// Setting is a setting of the cluster's policy of which the backup has another value, both
// as the command line writes them.
type Setting struct {
	Name string `json:"name"`
	From string `json:"from"` // the cluster's
	To   string `json:"to"`   // the backup's
	Kept bool   `json:"kept"` // the cluster's stays: the backup's would open what is closed
}

// different returns the settings that differ, and those of them that are to be set.
func different(have, to *pb.Policy) (set *pb.Policy, settings []Setting) {
	set = &pb.Policy{}
	for _, s := range policy.Settings() {
		old, _ := s.Get(have)
		value, ok := s.Get(to)
		if !ok || value == old {
			continue
		}
		// With it, whoever reaches the listener is answered without a login.
		lowers := s.Name == "http-login" && value == 0
		if !lowers {
			s.Set(set, value)
		}
		settings = append(settings, Setting{s.Name, s.Text(old), s.Text(value), lowers})
	}
	return set, settings
}

// table asks for the begin or the end of a table's restore.
func (r *restoring) table(ctx context.Context,
	req *pb.RestoreTableRequest) (out *pb.RestoreTableResponse, err error) {
	err = r.persist(ctx, func() (bool, error) {
		out, err = r.client.Admin().RestoreTable(ctx, req)
		return false, err
	})
	if err != nil {
		err = coded.Errorf("", "backup: restore table %q: %w", req.Name, err)
	}
	return out, err
}

// begin makes sure that no table holds anything, and then marks them all.
func (r *restoring) begin(ctx context.Context) error {
	there, err := r.client.Tables(ctx)
	if err != nil {
		return err
	}
	r.skipDone(there)
	for _, t := range r.tables {
		i := slices.IndexFunc(there, func(x *pb.Table) bool { return x.Name == t.to })
		if t.done || i < 0 || there[i].Restoring != nil {
			continue
		}
		last, err := r.last(ctx, mvcc.Span{Table: mvcc.TableID(there[i].Id)})
		if err != nil {
			return err
		}
		if last != nil {
			return coded.Errorf("", "%w: %q: drop it, or restore the table under another name", ErrNotEmpty, t.to)
		}
	}
	for i := range r.tables {
		t := &r.tables[i]
		if t.done {
			continue
		}
		// A tablet for each range, in requests of as many as one takes. The last one has none,
		// and has the tablets refuse reads of the time before.
		var keys [][]byte
		for _, rows := range t.ranges {
			if len(rows.Start) > 0 {
				keys = append(keys, rows.Start)
			}
		}
		for last := false; !last; {
			n := min(len(keys), splitsAtOnce)
			last = n == 0
			answer, err := r.table(ctx, &pb.RestoreTableRequest{
				Name: t.to, Mark: r.mark, SplitKeys: keys[:n],
			})
			if err != nil {
				return err
			}
			t.id, keys = answer.TableId, keys[n:]
		}
	}
	return nil
}

// skipDone marks the tables that an earlier run has ended. If it has ended all, this run is
// another, unless it may have notifications to make.
func (r *restoring) skipDone(there []*pb.Table) {
	done := 0
	for i := range r.tables {
		t := &r.tables[i]
		for _, x := range there {
			if x.Name == t.to && x.Restoring == nil && proto.Equal(x.Restored, r.mark) {
				t.done, t.id = true, x.Id
				done++
			}
		}
	}
	for i := range r.tables {
		t := &r.tables[i]
		t.done = t.done && (done < len(r.tables) || r.options.Notify)
		if t.done {
			r.result.Before = append(r.result.Before, t.to)
		}
	}
}

// splitsAtOnce is how many tablets one request makes: it is answered within its bound.
const splitsAtOnce = 64

// last returns the last cell of the rows that has a value, nil if none has.
func (r *restoring) last(ctx context.Context, rows mvcc.Span) (cell *mvcc.ReadCell, err error) {
	now, err := r.client.Timestamp(ctx)
	if err != nil {
		return nil, err
	}
	done := errors.New("found")
	err = r.scan(ctx, txn.RecordScan{Span: rows, At: now, Reverse: true, Limit: 1},
		func(c *mvcc.ReadCell) error {
			cell = c
			return done
		})
	if cell != nil {
		err = nil
	}
	return cell, err
}

// write writes all ranges.
func (r *restoring) write(ctx context.Context) error {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(r.Workers)
	tables := slices.DeleteFunc(slices.Clone(r.tables), func(t target) bool { return t.done })
	for i := range tables {
		r.plans(len(tables[i].ranges))
	}
	for i := range tables {
		t := &tables[i]
		for j := range t.ranges {
			group.Go(func() error { return r.writeRange(within, t, &t.ranges[j]) })
		}
	}
	err := group.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Records = r.tally.Records
	return err
}

// Bounds of one request with restored cells.
const (
	batchRecords = 2048
	batchBytes   = 512 << 10
)

// writeRange writes a range, from behind the last cell that is there on. That cell says how
// far an earlier run has come only if it is restored: somebody may have written between the
// first look at the table and its mark, from which on its tablets refuse that, and all of such
// cells are newer. They are met here, since no range was begun before the mark.
func (r *restoring) writeRange(ctx context.Context, t *target, rows *Range) error {
	span := rows.span()
	span.Table = mvcc.TableID(t.id)
	last, err := r.last(ctx, span)
	switch {
	case err != nil:
		return err
	case last != nil && uint64(last.CommitTS) > r.mark.At:
		return coded.Errorf("", "%w: %q: somebody wrote row %q at %d while it was being restored: end that program, drop the table, and restore it again",
			ErrNotEmpty, t.to, last.Cell.Row, last.CommitTS)
	case last != nil:
		last.Cell.Table = mvcc.TableID(rows.Table) // as in the files
	}
	var batch []mvcc.RestoredCell
	var passed, bytes int64
	flush := func() error {
		if err := r.throttle(ctx, bytes); err != nil {
			return err
		}
		if err := r.send(ctx, t, batch); err != nil {
			return err
		}
		r.count(0, int64(len(batch))+passed, bytes)
		batch, bytes, passed = batch[:0], 0, 0
		return nil
	}
	err = newMerge(r.from, t.chain, rows, r.mark.At).each(ctx, func(c *mvcc.ReadCell) error {
		if last != nil && c.Cell.Compare(last.Cell) <= 0 {
			passed++
			return nil
		}
		size := recordBytes(c)
		if len(batch) > 0 && (len(batch) == batchRecords || bytes+size > batchBytes) {
			if err := flush(); err != nil {
				return err
			}
		}
		batch = append(batch, mvcc.RestoredCell{
			Cell: c.Cell, StartTS: c.StartTS, CommitTS: c.CommitTS, Value: c.Value,
		})
		bytes += size
		return nil
	})
	if err != nil {
		return err
	}
	if err := flush(); err != nil {
		return err
	}
	r.count(1, 0, 0)
	return nil
}

// send writes one batch.
func (r *restoring) send(ctx context.Context, t *target, batch []mvcc.RestoredCell) error {
	if len(batch) == 0 {
		return nil
	}
	cells := wire.RestorePB(batch)
	err := r.persist(ctx, func() (bool, error) {
		_, err := r.client.Admin().RestoreCells(ctx, &pb.RestoreCellsRequest{
			Name: t.to, Mark: r.mark, Cells: cells,
		})
		return false, err
	})
	if err != nil {
		return coded.Errorf("", "backup: restore table %q: %w", t.to, err)
	}
	return nil
}
