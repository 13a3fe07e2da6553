package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/percolator-go/percolator/actors/archiver"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file has the scheduled backups, which the node that leads meta makes.

// startArchiver starts the job that makes scheduled backups. The worker of changes calls it.
func (l *leaderJobs) startArchiver() error {
	j, err := archiver.Spawn(l.system, archiver.Config{
		Schedules: l.meta.Schedules, Make: l.makeBackup, Logger: l.cfg.Logger,
	})
	if err != nil {
		return fmt.Errorf("node: start scheduled backups: %w", err)
	}
	l.began(j, func() { l.archiver = j })
	return nil
}

// wakeArchiver makes the archiver check at once for due backups, if it runs here.
func (l *leaderJobs) wakeArchiver() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.archiver != nil {
		l.archiver.Wake()
	}
}

// Schedules implements telemetry.Jobs: the schedules of backups as last read by the archiver; nil if it does not run
// here.
func (l *leaderJobs) Schedules() []*pb.BackupSchedule {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.archiver == nil {
		return nil
	}
	return l.archiver.Last()
}

// makeBackup makes one backup of a schedule, and removes those that its retention does not need.
func (l *leaderJobs) makeBackup(ctx context.Context, s *pb.BackupSchedule,
	incremental bool) (made archiver.Made, err error) {
	location, err := backup.OpenNew(ctx, s.Location)
	if err != nil {
		return made, err
	}
	defer func() { err = errors.Join(err, location.Close()) }()
	options := backup.CreateOptions{
		Options:     backup.Options{Rate: int64(s.Rate), By: "schedule " + s.Name},
		Incremental: incremental, Tables: s.Tables, Hold: s.FullEveryMs > 0,
	}
	m, err := l.createBackup(ctx, location, options)
	if err != nil {
		return made, err
	}
	made = archiver.Made{Name: m.Name, At: m.Time, Full: !m.Incremental()}
	if s.KeepMs > 0 {
		_, made.PruneErr = backup.Prune(ctx, location, backup.PruneOptions{
			Keep: time.Duration(s.KeepMs) * time.Millisecond, Now: m.Time,
			Cluster: m.Cluster, Tables: s.Tables,
		})
	}
	return made, nil
}

// createBackup makes the backup, a full one if no increment is possible. It discards an
// unfinished backup that another request began.
func (l *leaderJobs) createBackup(ctx context.Context, location *backup.Location,
	o backup.CreateOptions) (*backup.Manifest, error) {
	for {
		m, err := backup.Create(ctx, l.client, location, o)
		switch {
		case errors.Is(err, backup.ErrInterrupted) && !o.Restart:
			o.Restart = true
		case o.Incremental && (errors.Is(err, backup.ErrHistoryGone) || errors.Is(err, backup.ErrNotFound)):
			o.Incremental = false
		default:
			return m, err
		}
	}
}

// pendingPage is the number of timers or notifications in one answer.
const pendingPage = 1024

// SetTimers implements admin.Node.
func (n *adminNode) SetTimers(ctx context.Context, timers []mvcc.Timer) error {
	return n.client.SetTimers(ctx, timers)
}

// PendingTimers implements admin.Node.
func (n *adminNode) PendingTimers(ctx context.Context, at mvcc.Timestamp,
	from string) (out []*pb.PendingNotification, after string, err error) {
	scan := txn.RecordScan{Span: mvcc.Span{Table: mvcc.TimerTable, Start: from}, At: at, Limit: pendingPage}
	for r, err := range n.client.Records(ctx, scan) {
		if err != nil {
			return nil, "", err
		}
		after = r.Cell.Row
		timer, ok := mvcc.TimerOf(r.Cell, r.Value)
		if !ok {
			continue
		}
		out = append(out, pendingPB(timer.Target, timer.Due))
		if len(out) == pendingPage {
			return out, after, nil
		}
	}
	return out, "", nil
}

// PendingWeak implements admin.Node.
func (n *adminNode) PendingWeak(ctx context.Context, column mvcc.ObservedColumn,
	from string) (out []*pb.PendingNotification, after string, err error) {
	for e, err := range n.client.WalkFrom(ctx, mvcc.GroupNotify,
		wire.Position{Table: column.Table, Row: from}, column.Column) {
		if err != nil {
			return nil, "", err
		}
		cell := wire.Cell(e.GetCell())
		out = append(out, pendingPB(cell, mvcc.Timestamp(e.GetNotify().GetTs()).Millis()))
		if after = cell.Row; len(out) == pendingPage {
			return out, after, nil
		}
	}
	return out, "", nil
}

func pendingPB(c mvcc.Cell, due int64) *pb.PendingNotification {
	return &pb.PendingNotification{
		Table: uint32(c.Table), Row: wire.Bytes(c.Row), Column: wire.Bytes(c.Column), DueUnixMs: due,
	}
}
