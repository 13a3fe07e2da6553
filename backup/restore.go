package backup

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/policy"
	"github.com/percolator-go/percolator/internal/txn"
)

// Restores of tables. Each range of a table's first backup is restored by one worker, in the order
// of cells, so that the last existing cell marks the progress of an earlier run: no other progress
// is recorded. Workers share the tally and the limiter.

// RestoreOptions configure a restore.
type RestoreOptions struct {
	Options
	// Backup names the backup whose chain is restored. Defaults to the oldest that covers At, or,
	// if At is 0, to the newest; the location must then have backups of one cluster and one set of
	// tables only.
	Backup string
	At     uint64 // restored timestamp. Defaults to that of the backup
	// Tables maps tables of the backup to their new names. Defaults to all tables under their own
	// names.
	Tables map[string]string
	// Policy restores the cluster's policy too, except that it never disables the login over
	// HTTP. A backup of chosen tables has no policy.
	Policy bool
	// Settings is called with the policy settings that differ from the backup's, if there are any,
	// after those that are not Kept are set.
	Settings func([]Setting)
	// Notify finally marks observed cells whose last change their observers had not processed at
	// At, so that they run. Without it an observer runs only when a cell changes again.
	Notify bool
	// NoExpiry restores tables without their expiry, so that cells which are too old by now stay.
	NoExpiry bool
}

// Restored is the result of Restore.
type Restored struct {
	Backup  string
	At      uint64
	Tables  []string // all restored tables, by their names now
	Before  []string // tables completed by an earlier run, to which nothing was written
	LeftOut []string // tables that may have existed at At and were dropped before the backup
	// Granted are the tables with grants from the backup. Ungranted are those whose grants the
	// backup does not contain; they are open to all clients.
	Granted   []TableGrants
	Ungranted []string
	// Expiring are the tables that were restored with an expiry: cells that are too old by now are
	// deleted soon.
	Expiring []string
	Records  int64
	Pending  int64 // timers set by the restore, for the backup's timers and weak notifications
	Notified int64
}

// Restore writes the state at a timestamp into empty or new tables. It resumes an interrupted
// restore.
func Restore(ctx context.Context, c *txn.Client, l *Location, o RestoreOptions) (*Restored, error) {
	r := &restoreRun{recordWriter: recordWriter{work: newWork(c, l, o.Options)}, options: o}
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

// run restores the selected tables.
func (r *restoreRun) run(ctx context.Context) error {
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
		if err := r.finishTable(ctx, t.to); err != nil {
			return err
		}
	}
	if r.options.Notify {
		return r.notify(ctx)
	}
	return nil
}

// restoreRun is a restore in progress.
type restoreRun struct {
	recordWriter
	options RestoreOptions
	chain   []*Manifest // backups to restore, the full one first
	tables  []target
	result  Restored
}

// target is one table of a restore.
type target struct {
	Table
	to     string
	id     uint32 // of the table in this cluster
	chain  []*Manifest
	ranges []Range
	done   bool // an earlier run of this restore has completed the table
}

// find finds the chain.
func (r *restoreRun) find(ctx context.Context) error {
	last, err := r.newest(ctx)
	if err != nil {
		return err
	}
	if r.chain, err = r.from.chain(ctx, last); err != nil {
		return err
	}
	at := r.options.At
	at = cmp.Or(at, last.At)
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

// newest returns the named backup, regardless of the others; or the oldest that covers At, or the
// newest.
func (r *restoreRun) newest(ctx context.Context) (last *Manifest, err error) {
	if name := r.options.Backup; name != "" {
		last, err = r.from.manifest(ctx, name)
		if err == nil && last == nil {
			err = coded.Errorf("", "%w: %s", ErrNotFound, name)
		}
		return last, err
	}
	all, err := r.from.whole(ctx)
	if err != nil {
		return nil, coded.Errorf("", "%w; restore another backup by its name", err)
	}
	for _, m := range all {
		if last == nil || r.options.At == 0 || last.At < r.options.At {
			last = m
		}
	}
	if last == nil {
		return nil, coded.Errorf("", "%w: there is no complete backup", ErrNotFound)
	}
	if slices.ContainsFunc(all, func(m *Manifest) bool {
		return m.Cluster != last.Cluster || !slices.Equal(chosen(m), chosen(last))
	}) {
		return nil, coded.Errorf("", "%w: the location has backups of several clusters or of different tables: name one of them",
			ErrNotFound)
	}
	return last, nil
}

// choose maps tables to targets.
func (r *restoreRun) choose() error {
	last := r.chain[len(r.chain)-1]
	wanted := r.options.Tables
	for _, t := range last.Tables {
		to, ok := wanted[t.Name]
		if len(wanted) > 0 && !ok {
			continue
		}
		to = cmp.Or(to, t.Name)
		x := target{Table: t, to: to}
		if r.options.NoExpiry {
			x.Expiry = nil
		}
		if x.Expiry != nil {
			r.result.Expiring = append(r.result.Expiring, to)
		}
		// Begin the table's chain with the first backup that contains the table.
		i := slices.IndexFunc(r.chain, func(m *Manifest) bool { return m.has(t.ID) })
		x.chain = r.chain[i:]
		if older := r.dropped()[t.Name]; older != "" {
			return coded.Errorf("", "%w %q was dropped and recreated between the backups: the new one can be restored at timestamps from %d on; the older one %s",
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
	for i, to := range r.result.Tables {
		if slices.Contains(r.result.Tables[:i], to) {
			return coded.Errorf("", "%w %q: two tables would be restored under this name: give one another name",
				ErrTable, to)
		}
	}
	// At an earlier timestamp there may have been tables that the last backup lacks.
	if len(wanted) == 0 {
		for name := range r.dropped() {
			r.result.LeftOut = append(r.result.LeftOut, name)
		}
		slices.Sort(r.result.LeftOut)
	}
	return nil
}

// dropped returns, by name, the tables that may have existed at the restored timestamp and are
// missing in the last backup: at which timestamps each can be restored, and how.
func (r *restoreRun) dropped() map[string]string {
	out, last := map[string]string{}, r.chain[len(r.chain)-1]
	for i, m := range r.chain {
		// Skip this backup if the next one, too, is at or before the restored timestamp: that one
		// shows what existed then.
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

// policy restores the cluster's policy: the differing settings, except those that it must not
// lower.
func (r *restoreRun) policy(ctx context.Context) error {
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

// Setting is a policy setting that differs from the backup's, with both values in the form of the
// command line.
type Setting struct {
	Name string `json:"name"`
	From string `json:"from"` // value in the cluster
	To   string `json:"to"`   // value in the backup
	Kept bool   `json:"kept"` // the cluster's value is kept, because the backup's would lower the protection
}

// different returns the settings that differ, and those of them to be set.
func different(have, to *pb.Policy) (set *pb.Policy, settings []Setting) {
	set = &pb.Policy{}
	for _, s := range policy.Settings() {
		old, _ := s.Get(have)
		value, ok := s.Get(to)
		if !ok || value == old {
			continue
		}
		// With http-login 0 the listener serves every client without a login.
		lowers := s.Name == "http-login" && value == 0
		if !lowers {
			s.Set(set, value)
		}
		settings = append(settings, Setting{s.Name, s.Text(old), s.Text(value), lowers})
	}
	return set, settings
}

// begin checks that all existing tables without a mark are empty, and then creates or marks all
// tables but those that an earlier run completed.
func (r *restoreRun) begin(ctx context.Context) error {
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
		var keys [][]byte
		for _, rows := range t.ranges {
			if len(rows.Start) > 0 {
				keys = append(keys, rows.Start)
			}
		}
		if t.id, err = r.markTable(ctx, t.to, keys, t.Expiry.message()); err != nil {
			return err
		}
	}
	return nil
}

// skipDone sets done for the tables completed by an earlier run. If that run completed all tables,
// done is set only with Notify: otherwise Restore starts over, and fails if a table has rows.
func (r *restoreRun) skipDone(there []*pb.Table) {
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

// write writes all ranges.
func (r *restoreRun) write(ctx context.Context) error {
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

// writeRange writes one range of a table.
func (r *restoreRun) writeRange(ctx context.Context, t *target, rows *Range) error {
	span := rows.span()
	span.Table = mvcc.TableID(t.id)
	return r.recordWriter.writeRange(ctx, t.to, span, func(fn func(*mvcc.ReadCell) error) error {
		return newMerge(r.from, t.chain, rows, r.mark.At).each(ctx, fn)
	})
}
