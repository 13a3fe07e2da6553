package leaderjobs

import (
	"context"
	"errors"
	"time"

	"github.com/percolator-go/percolator/actors/archiver"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/backup"
)

// This file has the scheduled backups, which the node that leads meta makes.

// startArchiver starts the job that makes scheduled backups. The worker of changes calls it.
func (l *Jobs) startArchiver() error {
	j, err := archiver.Spawn(l.cfg.System, archiver.Config{
		Schedules: l.cfg.Meta.Schedules, Make: l.makeBackup, Logger: l.cfg.Node.Logger,
	})
	return began(l, &l.archiver, j, "scheduled backups", err)
}

// WakeArchiver makes the archiver check at once for due backups, if it runs here.
func (l *Jobs) WakeArchiver() {
	if j := l.archiver.Load(); j != nil {
		j.Wake()
	}
}

// Schedules implements telemetry.Jobs. It returns the schedules of backups as the archiver last read
// them; nil if the archiver does not run here.
func (l *Jobs) Schedules() []*pb.BackupSchedule {
	if j := l.archiver.Load(); j != nil {
		return j.Last()
	}
	return nil
}

// makeBackup creates one backup of a schedule, and removes backups beyond its retention.
func (l *Jobs) makeBackup(ctx context.Context, s *pb.BackupSchedule,
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

// createBackup makes the backup, a full one if no increment is possible. It discards an unfinished
// backup with other options.
func (l *Jobs) createBackup(ctx context.Context, location *backup.Location,
	o backup.CreateOptions) (*backup.Manifest, error) {
	for {
		m, err := backup.Create(ctx, l.cfg.Client, location, o)
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
