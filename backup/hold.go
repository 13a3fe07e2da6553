package backup

import (
	"context"
	"errors"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/txn"
)

// Holds of history between a backup and the next increment. A hold is a lease in meta, by the
// name of the backup, from its plan on, so that an interrupted backup can be resumed at any time.
// The next backup of the same tables in the location first creates its own hold, and releases the
// older ones when it is whole. A process that dies in between leaves both, and the next backup
// releases them.

// hold returns the backup's hold for a request; empty if it has none.
func (m *Manifest) hold() []*pb.BackupHold {
	if m.Hold == "" {
		return nil
	}
	return []*pb.BackupHold{{Backup: m.Name, At: m.At, Token: []byte(m.Hold)}}
}

// holdNext holds history for the increment of this backup, if requested.
func (m *backupRun) holdNext(ctx context.Context) error {
	for _, h := range m.plan.Manifest.hold() {
		answer, err := m.askHold(ctx, &pb.HoldBackupRequest{Hold: h})
		if err != nil {
			return coded.Errorf("", "backup: hold history for the next increment: %w", err)
		}
		if answer.Bound > h.At {
			return txn.ErrSnapshotTooOld
		}
	}
	return nil
}

// superseded returns the holds of the backups in the location that this one replaces as the next
// increment's parent.
func (m *backupRun) superseded(ctx context.Context, head *Manifest) (out []*pb.BackupHold, err error) {
	if len(m.held) == 0 {
		return nil, nil
	}
	names, err := m.from.names(ctx)
	if err != nil {
		return nil, err
	}
	for _, h := range m.held {
		if h.Backup == head.Name || !slices.Contains(names, h.Backup) {
			continue
		}
		older, err := m.from.manifest(ctx, h.Backup)
		if errors.Is(err, ErrDamaged) {
			continue // the token cannot be read: an operator must release the hold
		}
		if err != nil {
			return nil, err
		}
		if older != nil && older.Cluster == head.Cluster &&
			slices.Equal(chosen(older), sortedSet(m.options.Tables)) {
			out = append(out, older.hold()...)
		}
	}
	return out, nil
}

// releaseOlder releases the holds that this complete backup has replaced.
func (m *backupRun) releaseOlder(ctx context.Context) error {
	older, err := m.superseded(ctx, &m.plan.Manifest)
	if err == nil {
		err = m.release(ctx, older...)
	}
	if err != nil {
		return coded.Errorf("", "backup: %s is complete, but history stays held for its predecessor until the next backup: %w",
			m.plan.Manifest.Name, err)
	}
	return nil
}

// release releases holds, which need not exist.
func (m *backupRun) release(ctx context.Context, holds ...*pb.BackupHold) error {
	if len(holds) == 0 {
		return nil
	}
	_, err := m.askHold(ctx, &pb.HoldBackupRequest{Release: holds})
	return err
}

func (m *backupRun) askHold(ctx context.Context,
	req *pb.HoldBackupRequest) (out *pb.HoldBackupResponse, err error) {
	err = m.persist(ctx, func() (bool, error) {
		out, err = m.client.Admin().HoldBackup(ctx, req)
		return false, err
	})
	return out, err
}
