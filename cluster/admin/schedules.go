package admin

import (
	"context"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Changes and lists of the schedules of backups, which are a record in meta.

// BackupSchedules implements pb.AdminServer.
func (s *Service) BackupSchedules(ctx context.Context,
	req *pb.BackupSchedulesRequest) (*pb.BackupSchedulesResponse, error) {
	schedules := s.cfg.Schedules
	if set := req.GetSet(); set != nil {
		if set.FirstUnixMs == 0 {
			set.FirstUnixMs = time.Now().UnixMilli()
		}
		if err := s.tablesExist(ctx, set.GetTables()); err != nil {
			return nil, err
		}
		if err := schedules.Set(ctx, set); err != nil {
			return nil, err
		}
	}
	if req.GetRemove() != "" {
		if err := schedules.Remove(ctx, req.Remove); err != nil {
			return nil, err
		}
	}
	if req.GetRun() != "" {
		err := schedules.Note(ctx, req.Run, func(have *pb.BackupSchedule) { have.Run = true })
		if err != nil {
			return nil, err
		}
	}
	s.cfg.Node.WakeBackups()
	all, err := schedules.List(ctx)
	return &pb.BackupSchedulesResponse{Schedules: all}, err
}

// tablesExist rejects the request if one of the tables does not exist.
func (s *Service) tablesExist(ctx context.Context, names []string) error {
	for _, name := range names {
		t, err := s.cfg.Schema.Table(ctx, name)
		if err != nil {
			return err
		}
		if t == nil {
			return refuse("there is no table %q: `percolator table ls` lists them", name)
		}
	}
	return nil
}
