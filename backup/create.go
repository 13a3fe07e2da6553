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

// This file makes backups. Create plans one, or finds the plan of one that was interrupted,
// and has workers copy its ranges, each range by one worker into one file. Snapshots hold the
// history from Create to its end.

// CreateOptions say what is backed up.
type CreateOptions struct {
	Options
	Incremental bool     // only what has changed since the newest backup of the location
	Tables      []string // only these; default: all
	Restart     bool     // forget a backup that was interrupted
	// Hold keeps history for the next increment after this backup has ended, until that is made,
	// the hold is released, or the cluster's policy ends it. What is held for a backup of the
	// location is held for the next one of the same tables in its place, without Hold too.
	Hold bool
	// Resumed is called when a backup that was interrupted goes on.
	Resumed func(name string)
}

// Create makes a backup, or goes on with the one that was interrupted, and returns its
// manifest.
func Create(ctx context.Context, c *txn.Client, l *Location, o CreateOptions) (*Manifest, error) {
	m := &making{work: newWork(c, l, o.Options), options: o}
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
		// History does not come back: nobody can go on with this one.
		_ = m.remove(ctx, &m.plan.Manifest)
		return nil, coded.Errorf("", "%w: %s: %w", ErrHistoryGone, m.plan.Manifest.Name, err)
	}
	if errors.Is(err, txn.ErrNoTable) {
		return nil, coded.Errorf("", "%w was dropped while %s was made of it, which can't be finished: begin anew with --restart: %w",
			ErrTable, m.plan.Manifest.Name, err)
	}
	return manifest, err
}

// allowed returns an error unless all nodes know the scans that backups are made of. The nodes
// check that too, but those of an earlier build do not: they would answer with cells as they
// are now.
func (m *making) allowed(ctx context.Context) error {
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

// making is a backup being made.
type making struct {
	*work
	options CreateOptions
	plan    *plan
	done    map[int]File // of its ranges, by earlier runs
	pins    []*txn.Snapshot
	held    []*pb.BackupHold // for backups, anybody's, when this one began
	weak    []pendingColumn
	agreed  version.Agreed
}

// pin keeps history from the timestamp on while the backup is being made.
func (m *making) pin(ctx context.Context, at uint64) error {
	s, err := m.client.SnapshotAt(ctx, mvcc.Timestamp(at))
	if err == nil {
		m.pins = append(m.pins, s)
	}
	return err
}

// unpin lets history be collected.
func (m *making) unpin() {
	for _, s := range m.pins {
		_ = s.Close()
	}
}

// cluster returns the id of the cluster.
func (m *making) cluster(ctx context.Context) (string, error) {
	status, err := m.client.NodeStatus(ctx)
	return status.GetClusterId(), err
}

// find finds the plan of a backup that was interrupted, and what of it is done.
func (m *making) find(ctx context.Context) error {
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
			// Nobody can go on with it, or say that it may be removed. A backup that would be
			// made upon it is refused when that is looked for.
		case err != nil:
			return err
		case !found || whole != nil || p.Manifest.Cluster != id || p.Manifest.Name != name:
			// Whole, or not of this cluster.
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

// remove removes a backup that is not whole.
func (m *making) remove(ctx context.Context, head *Manifest) error {
	if err := m.release(ctx, head.hold()...); err != nil {
		return err
	}
	objects, err := m.from.objects(ctx, head.Name)
	if err != nil {
		return err
	}
	return m.from.remove(ctx, objects)
}

// resume goes on with a plan of this cluster, if it is of the backup that is wanted.
func (m *making) resume(ctx context.Context, p *plan) error {
	head := &p.Manifest
	if head.Incremental() != m.options.Incremental ||
		!slices.Equal(chosen(head), sortedSet(m.options.Tables)) {
		return coded.Errorf("", "%w: %s is not the backup that is asked for: run its command again, or start over with --restart",
			ErrInterrupted, head.Name)
	}
	if m.options.Hold && head.Hold == "" {
		return coded.Errorf("", "%w: %s was begun without --hold: run it without, or start over with --restart",
			ErrInterrupted, head.Name)
	}
	m.plan, m.done = p, map[int]File{}
	// What waited when the backup began, and has run since, is in neither: its effects are not.
	var err error
	if m.weak, _, err = m.listWeak(ctx); err != nil {
		return err
	}
	for _, at := range []uint64{head.At, head.Since} {
		if at == 0 {
			continue
		}
		if err := m.pin(ctx, at); err != nil {
			return err
		}
	}
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
	if m.options.Resumed != nil {
		m.options.Resumed(head.Name)
	}
	return nil
}

// chosen returns the names of the backup's tables if it is one of some only.
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

// prepare takes the timestamp and plans a backup at it.
func (m *making) prepare(ctx context.Context) error {
	p := &plan{}
	head := &p.Manifest
	id, err := m.cluster(ctx)
	if err != nil {
		return err
	}
	head.Cluster, head.Chosen = id, len(m.options.Tables) > 0
	if m.options.Incremental {
		if err := m.upon(ctx, head); err != nil {
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

// upon makes the backup one upon the newest of the same cluster and tables.
func (m *making) upon(ctx context.Context, head *Manifest) error {
	listed, err := m.from.List(ctx)
	if err != nil {
		return err
	}
	for _, b := range slices.Backward(listed) {
		if b.Err != nil {
			// It may be the one, and what was made upon an older one would miss what it has.
			return coded.Errorf("", "%w: make a full backup", b.Err)
		}
		parent := b.Manifest
		if parent == nil || parent.Cluster != head.Cluster || !slices.Equal(chosen(parent), sortedSet(m.options.Tables)) {
			continue
		}
		head.Parent, head.ParentSHA256, head.Since = parent.Name, parent.sha256, parent.At
		return m.pin(ctx, parent.At)
	}
	return coded.Errorf("", "%w: no backup of these tables of this cluster to build upon: make a full one first",
		ErrNotFound)
}

// describe plans the ranges, and notes what else belongs to the cluster's schema. It is
// called after the timestamp was taken: all tables that have anything at it are there, or
// were dropped since.
func (m *making) describe(ctx context.Context, p *plan) error {
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
			return coded.Errorf("", "%w %q is being restored from %s: finish that, or drop the table, before it is backed up",
				ErrTable, t.Name, t.Restoring.Source)
		}
		head.Tables = append(head.Tables, Table{ID: t.Id, Name: t.Name, SplitKeys: t.SplitKeys})
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

// refuseHidden returns an error if all tables are to be backed up, and some are not told of.
func (m *making) refuseHidden(ctx context.Context, head *Manifest) error {
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
	return coded.Errorf("", "%w: %d tables have grants, none of them for this certificate, and would be missing: "+
		"name the tables that are meant, or use an operator's certificate", ErrTable, n)
}

// ranges appends the tablets' ranges of a table.
func (m *making) ranges(ctx context.Context, out []Range, table uint32) ([]Range, error) {
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

// run copies the ranges that are not done, and writes the manifest.
func (m *making) run(ctx context.Context) (*Manifest, error) {
	head := &m.plan.Manifest
	if err := m.holdNext(ctx); err != nil {
		return nil, err
	}
	if err := m.copyPending(ctx); err != nil {
		return nil, err
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
	// What only a later run would have needed, and what attempts that were killed have left.
	// A crash in between leaves it there, and does no harm.
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

// copy copies one range into a file, and notes that it is done.
func (m *making) copy(ctx context.Context, i int) (File, error) {
	head, r := &m.plan.Manifest, m.plan.Ranges[i]
	// The name is this attempt's: two processes that have the same plan in hand never write
	// one object.
	name := fmt.Sprintf("%06d-%s.data", i, random())
	var file File
	err := m.from.write(ctx, head.path(name), false, func(w io.Writer) error {
		d, err := newDataWriter(w, r, name)
		if err != nil {
			return err
		}
		var records, bytes int64 // not yet counted
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
