package backup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// Creation of backups. Create plans one, or resumes the plan of an interrupted one, and has
// workers copy its ranges, each range by one worker into one file. A lease on history keeps the
// backup's versions readable until Create returns.

// CreateOptions configure a backup.
type CreateOptions struct {
	Options
	Incremental bool     // back up only changes since the newest backup of the location
	Tables      []string // back up only these tables. Defaults to all
	Restart     bool     // discard an interrupted backup
	// Hold keeps history for the next increment after this backup has ended, until that increment
	// is made, the hold is released, or the cluster's policy ends it. A hold for an earlier
	// backup of the same tables in the location passes to this one even without Hold.
	Hold bool
	// Resumed is called when an interrupted backup is resumed.
	Resumed func(name string)

	maxWeak int // maximum length of the first list of weak notifications; tests set it. Defaults to maxWeak
}

// Create creates a backup, or resumes an interrupted one, and returns its manifest. If the backup
// is complete and only removing leftovers or releasing holds fails, it returns both the manifest
// and the error.
func Create(ctx context.Context, c *txn.Client, l *Location, o CreateOptions) (*Manifest, error) {
	m := &backupRun{work: newWork(c, l, o.Options), options: o}
	defer m.unpin()
	if err := m.allowed(ctx); err != nil {
		return nil, err
	}
	if err := m.find(ctx); err != nil {
		return nil, err
	}
	if m.plan == nil {
		if err := m.prepare(ctx); err != nil {
			return nil, err
		}
	}
	kind := "full"
	if m.plan.Manifest.Incremental() {
		kind = "incremental"
	}
	stop := m.reportJob(ctx, &pb.Job{
		Kind: "backup", Subject: kind + " backup " + m.plan.Manifest.Name, Tables: chosen(&m.plan.Manifest),
	})
	manifest, err := m.run(ctx)
	stop(err)
	if errors.Is(err, txn.ErrSnapshotTooOld) {
		// Collected history does not come back: this backup can never be finished.
		_ = m.remove(ctx, &m.plan.Manifest)
		return nil, coded.Errorf("", "%w: %s: %w", ErrHistoryGone, m.plan.Manifest.Name, err)
	}
	if errors.Is(err, txn.ErrNoTable) {
		return nil, coded.Errorf("", "%w was dropped during the backup %s, which can't be finished: start over with --restart: %w",
			ErrTable, m.plan.Manifest.Name, err)
	}
	return manifest, err
}

// allowed returns an error unless all nodes support the scans of backups. The nodes check that
// too, but those of an earlier build do not: they would return current cells.
func (m *backupRun) allowed(ctx context.Context) error {
	policy, err := m.client.Admin().ClusterPolicy(ctx, &pb.ClusterPolicyRequest{})
	if err != nil {
		return coded.Errorf("", "backup: read the cluster's policy: %w", err)
	}
	m.held = policy.GetHolds()
	m.agreed = wire.Agreed(policy.GetPolicy().GetAgreed())
	if m.agreed.Active < version.Backups.Since {
		return coded.Errorf("", "backup: %w", version.NotActive(version.Backups, m.agreed))
	}
	return nil
}

// backupRun is a backup in progress.
type backupRun struct {
	*work
	options CreateOptions
	plan    *plan
	done    map[int]File // files of its ranges written by earlier runs
	pins    []*txn.Snapshot
	held    []*pb.BackupHold // holds that existed when this backup began, of all backups
	weak    weakList
	agreed  version.Agreed
}

// pin keeps history from the timestamp on until the backup ends, by an open snapshot.
func (m *backupRun) pin(ctx context.Context, at uint64) error {
	s, err := m.client.SnapshotAt(ctx, mvcc.Timestamp(at))
	if err == nil {
		m.pins = append(m.pins, s)
	}
	return err
}

// unpin releases the history.
func (m *backupRun) unpin() {
	for _, s := range m.pins {
		_ = s.Close()
	}
}

// cluster returns the cluster's id.
func (m *backupRun) cluster(ctx context.Context) (string, error) {
	status, err := m.client.NodeStatus(ctx)
	return status.GetClusterId(), err
}

// find finds the plan of an interrupted backup and its completed ranges. With Restart it removes
// interrupted backups instead.
func (m *backupRun) find(ctx context.Context) error {
	id, err := m.cluster(ctx)
	if err != nil {
		return err
	}
	names, err := m.from.names(ctx)
	if err != nil {
		return err
	}
	for _, name := range slices.Backward(names) {
		p, whole := &plan{}, (*Manifest)(nil)
		_, found, err := m.from.getSealed(ctx, name+"/"+kindPlan, kindPlan, p)
		if err == nil && found {
			whole, err = m.from.manifest(ctx, name)
		}
		switch {
		case errors.Is(err, ErrDamaged):
			// A damaged plan or manifest: the backup can neither be resumed nor declared obsolete.
			// An increment of it is rejected when its parent is looked up.
		case err != nil:
			return err
		case !found || whole != nil || p.Manifest.Cluster != id || p.Manifest.Name != name:
			// There is no plan, or the backup is complete or of another cluster.
		case !m.options.Restart:
			return m.resume(ctx, p)
		default:
			if err := m.remove(ctx, &p.Manifest); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove removes an unfinished backup.
func (m *backupRun) remove(ctx context.Context, head *Manifest) error {
	if err := m.release(ctx, head.hold()...); err != nil {
		return err
	}
	objects, err := m.from.objects(ctx, head.Name)
	if err != nil {
		return err
	}
	return m.from.remove(ctx, objects)
}

// resume continues a plan of this cluster if it is of the requested backup.
func (m *backupRun) resume(ctx context.Context, p *plan) error {
	head := &p.Manifest
	if head.Incremental() != m.options.Incremental ||
		!slices.Equal(chosen(head), sortedSet(m.options.Tables)) {
		return coded.Errorf("", "%w: %s is not the requested backup: run its command again, or start over with --restart",
			ErrInterrupted, head.Name)
	}
	if m.options.Hold && head.Hold == "" {
		return coded.Errorf("", "%w: %s was started without --hold: run it without, or start over with --restart",
			ErrInterrupted, head.Name)
	}
	m.plan, m.done = p, map[int]File{}
	for i := range p.Ranges {
		f := File{}
		_, found, err := m.from.getSealed(ctx, head.path(rangeName(i)), kindRange, &f)
		if err != nil && !errors.Is(err, ErrDamaged) {
			return err
		}
		if found && err == nil {
			m.done[i] = f
		}
	}
	if !p.Listed && len(m.done) == 0 {
		// No range is copied yet, so plan again: weak notifications that have run since the
		// timestamp would be missing.
		m.plan = nil
		return m.remove(ctx, head)
	}
	if !p.Listed { // the plan is of an earlier build: it lists no weak notifications
		var err error
		if m.weak, _, err = m.listWeak(ctx); err != nil {
			return err
		}
	}
	for _, at := range []uint64{head.At, head.Since} {
		if at == 0 {
			continue
		}
		if err := m.pin(ctx, at); err != nil {
			return err
		}
	}
	if m.options.Resumed != nil {
		m.options.Resumed(head.Name)
	}
	return nil
}

// chosen returns the names of the tables of a backup of chosen tables, or nil for one of all.
func chosen(m *Manifest) []string {
	if !m.Chosen {
		return nil
	}
	var names []string
	for _, t := range m.Tables {
		names = append(names, t.Name)
	}
	return sortedSet(names)
}

func sortedSet(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

func rangeName(i int) string { return fmt.Sprintf("%06d.%s", i, kindRange) }

// prepare obtains the timestamp and plans a backup at it.
func (m *backupRun) prepare(ctx context.Context) error {
	p := &plan{}
	head := &p.Manifest
	id, err := m.cluster(ctx)
	if err != nil {
		return err
	}
	head.Cluster, head.Chosen = id, len(m.options.Tables) > 0
	if m.options.Incremental {
		if err := m.chooseParent(ctx, head); err != nil {
			return err
		}
	}
	if m.weak, head.HasPending, err = m.listWeak(ctx); err != nil {
		return err
	}
	s, err := m.client.Snapshot(ctx)
	if err != nil {
		return err
	}
	m.pins = append(m.pins, s)
	head.At = uint64(s.Timestamp())
	head.Time = time.UnixMilli(s.Timestamp().Millis()).UTC()
	kind := "full"
	if m.options.Incremental {
		kind = "incremental"
	}
	head.Name = head.Time.Format("20060102T150405.000Z") + "-" + kind
	if err := m.describe(ctx, p); err != nil {
		return err
	}
	older, err := m.superseded(ctx, head)
	if err != nil {
		return err
	}
	if m.options.Hold || len(older) > 0 {
		head.Hold = rand.Text()
	}
	m.plan = p
	_, err = m.from.putSealed(ctx, head.path(kindPlan), kindPlan, p, false)
	return err
}

// chooseParent makes the backup an increment of the newest one of the same cluster and tables.
func (m *backupRun) chooseParent(ctx context.Context, head *Manifest) error {
	listed, err := m.from.List(ctx)
	if err != nil {
		return err
	}
	for _, b := range slices.Backward(listed) {
		if b.Err != nil {
			// The unreadable backup may be the newest one: an increment of an older one would lack
			// its changes.
			return coded.Errorf("", "%w: make a full backup", b.Err)
		}
		parent := b.Manifest
		if parent == nil || parent.Cluster != head.Cluster || !slices.Equal(chosen(parent), sortedSet(m.options.Tables)) {
			continue
		}
		head.Parent, head.ParentSHA256, head.Since = parent.Name, parent.sha256, parent.At
		return m.pin(ctx, parent.At)
	}
	return coded.Errorf("", "%w: this cluster has no backup of these tables to increment: make a full one first",
		ErrNotFound)
}

// describe plans the ranges and records the tables with their grants, the observers and the policy in
// the manifest. It is called after the timestamp was obtained: every table with data at it exists, or was dropped since.
func (m *backupRun) describe(ctx context.Context, p *plan) error {
	head := &p.Manifest
	if err := m.refuseHidden(ctx, head); err != nil {
		return err
	}
	tables, err := m.client.Tables(ctx)
	if err != nil {
		return err
	}
	missing := sortedSet(m.options.Tables)
	for _, t := range tables {
		if head.Chosen && !slices.Contains(m.options.Tables, t.Name) {
			continue
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == t.Name })
		if t.Restoring != nil {
			return coded.Errorf("", "%w %q is being restored from %s: finish the restore or drop the table before the backup",
				ErrTable, t.Name, t.Restoring.Source)
		}
		head.Tables = append(head.Tables, Table{
			ID: t.Id, Name: t.Name, SplitKeys: t.SplitKeys, Expiry: expiryOf(t.Expiry),
		})
		if p.Ranges, err = m.ranges(ctx, p.Ranges, t.Id); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return coded.Errorf("", "%w: %w: %q", ErrTable, txn.ErrNoTable, missing)
	}
	catalogue, err := m.client.Catalogue(ctx)
	if err != nil {
		return err
	}
	for _, o := range catalogue.GetObservers() {
		if head.has(o.Table) && !o.Retired {
			head.Observers = append(head.Observers, o.Name)
		}
	}
	policy, err := m.client.Admin().ClusterPolicy(ctx, &pb.ClusterPolicyRequest{})
	if err != nil {
		return coded.Errorf("", "backup: read the cluster's policy: %w", err)
	}
	for i := range head.Tables {
		head.Tables[i].Grants = grantsOf(policy.GetPolicy(), head.Tables[i].ID)
	}
	if head.Chosen || policy.GetPolicy().GetVersion() == 0 {
		return nil
	}
	policy.Policy.Version, policy.Policy.Agreed = 0, nil
	head.Policy, err = protojson.Marshal(policy.GetPolicy())
	return err
}

// refuseHidden returns an error if all tables are requested and some are hidden from this
// certificate.
func (m *backupRun) refuseHidden(ctx context.Context, head *Manifest) error {
	tables, err := m.client.Transport().Tables(ctx)
	if err != nil || head.Chosen {
		return err
	}
	n := 0
	for _, t := range tables {
		if t.Hidden && t.DroppedTs == 0 {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return coded.Errorf("", "%w: %d tables with grants, none for this certificate, would be missing: "+
		"name the tables to back up, or use an operator's certificate", ErrTable, n)
}

// ranges appends the ranges of a table's tablets.
func (m *backupRun) ranges(ctx context.Context, out []Range, table uint32) ([]Range, error) {
	const page = 256
	row := ""
	for {
		tablets, err := m.client.Transport().Locate(ctx, mvcc.TableID(table), row, page)
		if err != nil {
			return nil, err
		}
		for _, d := range tablets {
			span, ok := wire.Clip(d, mvcc.Span{Table: mvcc.TableID(table), Start: row})
			if !ok {
				return out, nil
			}
			out = append(out, Range{
				Table: table, Start: []byte(span.Start), End: []byte(span.End), HasEnd: span.HasEnd,
			})
			if !span.HasEnd {
				return out, nil
			}
			row = span.End
		}
		if len(tablets) == 0 {
			return nil, coded.Errorf("", "%w: the tablet of table %d row %q is not known", txn.ErrUnavailable,
				table, row)
		}
	}
}

// run copies the remaining ranges and writes the manifest.
func (m *backupRun) run(ctx context.Context) (*Manifest, error) {
	head := &m.plan.Manifest
	if err := m.holdNext(ctx); err != nil {
		return nil, err
	}
	if !m.plan.Listed {
		if err := m.copyPending(ctx); err != nil {
			return nil, err
		}
		m.plan.Listed = true
		if _, err := m.from.putSealed(ctx, head.path(kindPlan), kindPlan, m.plan, false); err != nil {
			return nil, err
		}
	}
	head.Files = make([]File, len(m.plan.Ranges))
	m.plans(len(m.plan.Ranges))
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(m.Workers)
	for i := range m.plan.Ranges {
		if f, ok := m.done[i]; ok {
			head.Files[i] = f
			m.count(1, f.Records, f.Bytes)
			continue
		}
		group.Go(func() (err error) {
			head.Files[i], err = m.copy(within, i)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	sum, err := m.from.putSealed(ctx, head.path(kindManifest), kindManifest, head, true)
	if err != nil {
		return nil, err
	}
	head.sha256 = sum
	// Objects needed only for resuming, and those of killed attempts. A crash before their
	// removal leaves them, which is harmless.
	leftover, err := m.from.objects(ctx, head.Name)
	if err != nil {
		return head, err
	}
	keep := map[string]bool{head.path(kindManifest): true}
	for _, f := range slices.Concat(head.Files, head.Pending) {
		keep[head.path(f.Name)] = true
	}
	leftover = slices.DeleteFunc(leftover, func(object string) bool { return keep[object] })
	return head, errors.Join(m.from.remove(ctx, leftover), m.releaseOlder(ctx))
}

// copy copies one range into a file and records that it is done.
func (m *backupRun) copy(ctx context.Context, i int) (File, error) {
	head, r := &m.plan.Manifest, m.plan.Ranges[i]
	// The name is unique to this attempt: two processes with the same plan never write the same
	// object.
	name := fmt.Sprintf("%06d-%s.data", i, random())
	var file File
	err := m.from.write(ctx, head.path(name), false, func(w io.Writer) error {
		d, err := newDataWriter(w, r, name)
		if err != nil {
			return err
		}
		var records, bytes int64 // not added to the progress yet
		err = m.scan(ctx, txn.RecordScan{
			Span: r.span(), At: mvcc.Timestamp(head.At), Since: mvcc.Timestamp(head.Since),
		}, func(c *mvcc.ReadCell) error {
			records, bytes = records+1, bytes+recordBytes(c)
			if bytes > 64<<10 || records > 1<<10 {
				if err := m.throttle(ctx, bytes); err != nil {
					return err
				}
				m.count(0, records, bytes)
				records, bytes = 0, 0
			}
			return d.add(c)
		})
		if err != nil {
			return err
		}
		m.count(0, records, bytes)
		file, err = d.end()
		return err
	})
	if err != nil {
		return File{}, err
	}
	if _, err := m.from.putSealed(ctx, head.path(rangeName(i)), kindRange, file, false); err != nil {
		return File{}, err
	}
	m.count(1, 0, 0)
	return file, nil
}
