package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// Backup and restore of pending notifications: durable timers, which are cells of the cluster's
// own table and are read at the backup's timestamp; and weak notifications, which have no
// versions. The latter are listed twice, before and after the timestamp is obtained: a
// notification pending at the timestamp is in the first list, or was written since and is in the
// second unless its run has ended by then. If the first list is truncated, those beyond it that have
// run before the second are missing (Manifest.PendingTruncated). Each backup of a chain has all of them. A backup that is
// resumed keeps its lists.
//
// They are stored in separate data files (Manifest.Pending): one with the cells of the timers,
// and one for each weak column with the notified cells, whose timestamps have no meaning. A
// restore sets a timer for each before its table can be opened.

const (
	// maxWeak limits the weak notifications of the first list, which is kept in memory.
	maxWeak = 1 << 18
	// pendingBatch is the number of timers in one request of a restore.
	pendingBatch = 512
)

// pendingColumn are the weak notifications of one column that were pending before the timestamp,
// in the order of rows.
type pendingColumn struct {
	mvcc.ObservedColumn
	waited []*pb.PendingNotification
}

// weakList is the first list of weak notifications.
type weakList struct {
	columns   []pendingColumn
	truncated bool // more than maxWeak were pending: columns lacks the others
}

// listWeak lists the pending weak notifications before the timestamp is obtained. allowed is
// false if the certificate may not list them, or some nodes may not support it.
func (m *backupRun) listWeak(ctx context.Context) (list weakList, allowed bool, err error) {
	if m.agreed.Active < version.Pending.Since {
		return list, false, nil
	}
	catalogue, err := m.client.Catalogue(ctx)
	if err != nil {
		return list, false, err
	}
	for column := range txn.WeakColumns(catalogue) {
		list.columns = append(list.columns, pendingColumn{ObservedColumn: column})
	}
	slices.SortFunc(list.columns, func(a, b pendingColumn) int {
		return mvcc.Cell{Table: a.Table, Column: a.Column}.Compare(mvcc.Cell{Table: b.Table, Column: b.Column})
	})
	// Check the permission with a column without an observer.
	for _, err := range m.pendings(ctx, &pb.PendingNotificationsRequest{Table: uint32(mvcc.TimerTable)}) {
		var refused *txn.ServerError
		if errors.As(err, &refused) && refused.Code == pb.Error_CODE_PERMISSION {
			return list, false, nil
		}
		if err != nil {
			return list, false, err
		}
	}
	left := cmp.Or(m.options.maxWeak, maxWeak)
	for i := range list.columns {
		c := &list.columns[i]
		for p, err := range m.pendings(ctx, c.request()) {
			if err != nil {
				return list, false, err
			}
			if left == 0 {
				list.truncated = true
				break
			}
			c.waited, left = append(c.waited, p), left-1
		}
	}
	return list, true, nil
}

func (c *pendingColumn) request() *pb.PendingNotificationsRequest {
	return &pb.PendingNotificationsRequest{Table: uint32(c.Table), Column: wire.Bytes(c.Column)}
}

// pendings yields the pending notifications, page by page.
func (m *backupRun) pendings(ctx context.Context,
	req *pb.PendingNotificationsRequest) func(func(*pb.PendingNotification, error) bool) {
	return func(yield func(*pb.PendingNotification, error) bool) {
		for {
			var page *pb.PendingNotificationsResponse
			err := m.persist(ctx, func() (_ bool, err error) {
				page, err = m.client.Admin().PendingNotifications(ctx, req)
				return false, err
			})
			if err != nil {
				yield(nil, coded.Errorf("", "backup: list timers and weak notifications: %w", err))
				return
			}
			for _, p := range page.GetPending() {
				if !yield(p, nil) {
					return
				}
			}
			if req.After = page.GetAfter(); len(req.After) == 0 {
				return
			}
		}
	}
}

// copyPending writes the files of pending notifications.
func (m *backupRun) copyPending(ctx context.Context) error {
	head := &m.plan.Manifest
	if !head.HasPending {
		return nil
	}
	head.Pending, head.PendingTruncated = nil, m.weak.truncated
	err := m.pendingFile(ctx, uint32(mvcc.TimerTable), func(add func(*pb.PendingNotification) error) error {
		for p, err := range m.pendings(ctx, &pb.PendingNotificationsRequest{At: head.At}) {
			if err != nil {
				return err
			}
			if err := add(p); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range m.weak.columns {
		c := &m.weak.columns[i]
		if err == nil && head.has(uint32(c.Table)) {
			err = m.pendingFile(ctx, uint32(c.Table), func(add func(*pb.PendingNotification) error) error {
				return m.mergeWeak(ctx, c, add)
			})
		}
	}
	return err
}

// mergeWeak adds the column's notifications of both lists in the order of rows, each once.
func (m *backupRun) mergeWeak(ctx context.Context, c *pendingColumn,
	add func(*pb.PendingNotification) error) error {
	waited := c.waited
	for p, err := range m.pendings(ctx, c.request()) {
		if err != nil {
			return err
		}
		for len(waited) > 0 && string(waited[0].Row) < string(p.Row) {
			if err := add(waited[0]); err != nil {
				return err
			}
			waited = waited[1:]
		}
		if len(waited) > 0 && string(waited[0].Row) == string(p.Row) {
			waited = waited[1:]
		}
		if err := add(p); err != nil {
			return err
		}
	}
	for _, p := range waited {
		if err := add(p); err != nil {
			return err
		}
	}
	return nil
}

// pendingFile writes one file of pending notifications: timers, or the weak notifications of a
// column of the table. Those of tables outside the backup are omitted.
func (m *backupRun) pendingFile(ctx context.Context, table uint32,
	fill func(add func(*pb.PendingNotification) error) error) error {
	head := &m.plan.Manifest
	name := fmt.Sprintf("pending%03d-%s.data", len(head.Pending), random())
	var file File
	err := m.from.write(ctx, head.path(name), false, func(w io.Writer) error {
		d, err := newDataWriter(w, Range{Table: table}, name)
		if err != nil {
			return err
		}
		err = fill(func(p *pb.PendingNotification) error {
			if !head.has(p.Table) {
				return nil
			}
			return d.add(pendingRecord(table, p, head.At))
		})
		if err != nil {
			return err
		}
		file, err = d.end()
		return err
	})
	switch {
	case err != nil:
		return err
	case file.Records == 0:
		return m.from.remove(ctx, []string{head.path(name)})
	}
	head.Pending = append(head.Pending, file)
	return nil
}

// pendingRecord returns the record of p in a file of the table.
func pendingRecord(table uint32, p *pb.PendingNotification, at uint64) *mvcc.ReadCell {
	r := &mvcc.ReadCell{StartTS: mvcc.Timestamp(at - 1), CommitTS: mvcc.Timestamp(at)}
	r.Cell = mvcc.Cell{Table: mvcc.TableID(p.Table), Row: wire.String(p.Row), Column: wire.String(p.Column)}
	if table == uint32(mvcc.TimerTable) {
		r.Cell, r.Value = mvcc.Timer{Target: r.Cell, Due: p.DueUnixMs}.Write()
	}
	return r
}

// withPending returns the newest backup of the chain that is not later than the timestamp.
func (r *restoreRun) withPending() *Manifest {
	i := len(r.chain) - 1
	for i > 0 && r.chain[i].At > r.mark.At {
		i--
	}
	return r.chain[i]
}

// allowed returns an error if timers or an expiry must be restored and some nodes may run a build
// that drops them.
func (r *restoreRun) allowed(ctx context.Context) error {
	timers, expiry := len(r.withPending().Pending) > 0, len(r.result.Expiring) > 0
	if !timers && !expiry {
		return nil
	}
	policy, err := r.client.Admin().ClusterPolicy(ctx, &pb.ClusterPolicyRequest{})
	if err != nil {
		return coded.Errorf("", "backup: read the cluster's policy: %w", err)
	}
	if err := wire.ExpiryActive(policy.GetPolicy()); err != nil && expiry {
		return coded.Errorf("", "backup: %w; NoExpiry (--no-expiry) restores the tables without their expiry", err)
	}
	if agreed := wire.Agreed(policy.GetPolicy().GetAgreed()); timers && agreed.Active < version.Pending.Since {
		return coded.Errorf("", "backup: %w", version.NotActive(version.Pending, agreed))
	}
	return nil
}

// pending sets the timers of the tables being restored.
func (r *restoreRun) pending(ctx context.Context) error {
	m := r.withPending()
	for j := range m.Pending {
		if err := r.pendingFile(ctx, m, &m.Pending[j]); err != nil {
			return err
		}
	}
	return nil
}

// pendingFile sets the timers of one file.
func (r *restoreRun) pendingFile(ctx context.Context, m *Manifest, f *File) error {
	d, err := r.from.openData(ctx, m, f)
	if err != nil {
		return err
	}
	defer d.close()
	batches := map[uint32][]*pb.PendingNotification{} // by table id of the backup
	for {
		c, err := d.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		timer := mvcc.Timer{Target: c.Cell}
		if c.Cell.Table == mvcc.TimerTable {
			timer, _ = mvcc.TimerOf(c.Cell, c.Value)
		}
		id := uint32(timer.Target.Table)
		batches[id] = append(batches[id], &pb.PendingNotification{
			Row: wire.Bytes(timer.Target.Row), Column: wire.Bytes(timer.Target.Column), DueUnixMs: timer.Due,
		})
		if len(batches[id]) == pendingBatch {
			if err := r.sendPending(ctx, id, batches[id]); err != nil {
				return err
			}
			batches[id] = nil
		}
	}
	for id, batch := range batches {
		if err := r.sendPending(ctx, id, batch); err != nil {
			return err
		}
	}
	return nil
}

// sendPending sets timers for rows of the table restored from the backup's table id, if any.
func (r *restoreRun) sendPending(ctx context.Context, id uint32, batch []*pb.PendingNotification) error {
	i := slices.IndexFunc(r.tables, func(t target) bool { return t.ID == id && !t.done })
	if i < 0 || len(batch) == 0 {
		return nil
	}
	err := r.persist(ctx, func() (bool, error) {
		_, err := r.client.Admin().RestoreCells(ctx, &pb.RestoreCellsRequest{
			Name: r.tables[i].to, Mark: r.mark, Pending: batch,
		})
		return false, err
	})
	if err != nil {
		return coded.Errorf("", "backup: set the timers of table %q: %w", r.tables[i].to, err)
	}
	r.result.Pending += int64(len(batch))
	return nil
}
