package archiver

import (
	"context"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// This file runs one turn, on the actor's goroutine.

const (
	// retryPause is the minimum time from the start of a failed attempt at a backup to the next
	// attempt; the schedule's interval applies if it is shorter.
	retryPause = 5 * time.Minute
	// listTimeout and noteTimeout bound the calls to meta.
	listTimeout = 5 * time.Second
	noteTimeout = 30 * time.Second
)

// turn makes the backups that are due, one after the other.
func (w *work) turn(ctx context.Context) time.Duration {
	all, err := w.list(ctx)
	if err != nil {
		return w.cfg.Pause // not logged here: other parts of the node log that meta is unreachable
	}
	for _, s := range all {
		if ctx.Err() == nil && due(s, w.cfg.Now()) {
			w.make(ctx, s)
		}
	}
	return w.cfg.Pause
}

// list reads the schedules.
func (w *work) list(ctx context.Context) ([]*pb.BackupSchedule, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	all, err := w.cfg.Schedules.List(ctx)
	if err == nil {
		w.mu.Lock()
		w.last = all
		w.mu.Unlock()
	}
	return all, err
}

// make creates a backup and records the outcome.
func (w *work) make(ctx context.Context, s *pb.BackupSchedule) {
	began, log := w.cfg.Now(), w.cfg.Logger.With("schedule", s.Name, "location", s.Location)
	made, err := w.cfg.Make(ctx, s, incremental(s, began))
	if ctx.Err() != nil {
		return // the next leader of meta resumes the backup
	}
	if err != nil {
		log.Warn("archiver: backup failed, will retry", "error", err)
	} else {
		log.Info("archiver: made a backup", "backup", made.Name, "took", w.cfg.Now().Sub(began))
	}
	if made.PruneErr != nil {
		log.Warn("archiver: cannot remove old backups", "error", made.PruneErr)
	}
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	if err := w.cfg.Schedules.Note(ctx, s.Name, func(have *pb.BackupSchedule) {
		note(have, began, made, err)
	}); err != nil {
		log.Warn("archiver: cannot record the outcome of a backup, which will be made again", "error", err)
	}
	_, _ = w.list(ctx) // refreshes what Last returns
}

// note writes the outcome of an attempt into the schedule's record.
func note(s *pb.BackupSchedule, began time.Time, made Made, err error) {
	s.TriedUnixMs, s.Run = began.UnixMilli(), false
	s.Error, s.PruneError = text(err), text(made.PruneErr)
	if err != nil {
		return
	}
	s.SuccessUnixMs, s.Backup = made.At.UnixMilli(), made.Name
	if made.Full {
		s.FullUnixMs = s.SuccessUnixMs
	}
}

// maxText bounds the text of an error in a record, in bytes.
const maxText = 1024

func text(err error) string {
	if err == nil {
		return ""
	}
	t := err.Error()
	return t[:min(len(t), maxText)]
}

// due reports whether a backup of the schedule is due.
func due(s *pb.BackupSchedule, now time.Time) bool {
	if s.Run {
		return true
	}
	// Checked before the first due time is: a requested backup may have failed before that time.
	pause := min(retryPause, time.Duration(s.EveryMs)*time.Millisecond)
	if s.Error != "" && now.UnixMilli()-s.TriedUnixMs >= pause.Milliseconds() {
		return true
	}
	elapsed := now.UnixMilli() - s.FirstUnixMs
	if elapsed < 0 || s.EveryMs <= 0 {
		return false
	}
	slot := now.UnixMilli() - elapsed%s.EveryMs // the latest due time up to now
	return s.TriedUnixMs < slot
}

// incremental reports whether the backup that begins now is an increment of the last one:
// FullEveryMs has not passed since the last full one. It deducts half of EveryMs, because backups
// begin late or early.
func incremental(s *pb.BackupSchedule, now time.Time) bool {
	return s.FullEveryMs > 0 && s.FullUnixMs > 0 &&
		now.UnixMilli()-s.FullUnixMs < s.FullEveryMs-s.EveryMs/2
}
