package meta

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Schedules of backups, in one record. The node that leads meta runs them (actors/archiver) and
// records the outcomes here.

const (
	rowSchedules = "backup-schedules"
	// Limits of schedules: their number, the bytes of a name and of a location, the tables of
	// one, and the minimum interval between two backups.
	maxSchedules        = 32
	maxScheduleName     = 64
	maxScheduleLocation = 1024
	maxScheduleTables   = 64
	minScheduleEvery    = time.Minute
)

// Schedules are the schedules of backups.
type Schedules struct{ records }

// List returns the schedules in the order of names.
func (s *Schedules) List(ctx context.Context) ([]*pb.BackupSchedule, error) {
	record, _, err := load[*pb.BackupScheduleRecord](ctx, s.records, rowSchedules)
	return record.GetSchedules(), err
}

// Set creates a schedule, or replaces the operator's fields of an existing one. The recorded
// outcomes are kept unless the location or the tables change. Errors: CODE_INVALID,
// CODE_TOO_LARGE.
func (s *Schedules) Set(ctx context.Context, to *pb.BackupSchedule) error {
	if err := checkSchedule(to); err != nil {
		return err
	}
	to = &pb.BackupSchedule{
		Name: to.Name, Location: to.Location, FirstUnixMs: to.FirstUnixMs, EveryMs: to.EveryMs,
		FullEveryMs: to.FullEveryMs, KeepMs: to.KeepMs, Rate: to.Rate,
		Tables: slices.Compact(slices.Sorted(slices.Values(to.Tables))),
	}
	_, err := update(ctx, s.records, rowSchedules,
		func(have *pb.BackupScheduleRecord) (*pb.BackupScheduleRecord, []change, error) {
			all := slices.Clone(have.GetSchedules())
			at, there := slices.BinarySearchFunc(all, to.Name, byScheduleName)
			switch {
			case !there && len(all) >= maxSchedules:
				return nil, nil, refuse(pb.Error_CODE_TOO_LARGE, "there are %d schedules of backups, "+
					"the maximum: remove one with `percolator backup schedule rm`", maxSchedules)
			case !there:
				return &pb.BackupScheduleRecord{Schedules: slices.Insert(all, at, to)}, nil, nil
			}
			next := proto.CloneOf(to)
			if old := all[at]; old.Location == to.Location && slices.Equal(old.Tables, to.Tables) {
				next.Run, next.TriedUnixMs, next.Error, next.PruneError = old.Run, old.TriedUnixMs, old.Error, old.PruneError
				next.SuccessUnixMs, next.FullUnixMs, next.Backup = old.SuccessUnixMs, old.FullUnixMs, old.Backup
			}
			all[at] = next
			return &pb.BackupScheduleRecord{Schedules: all}, nil, nil
		})
	return err
}

// Remove removes a schedule. CODE_INVALID if it does not exist.
func (s *Schedules) Remove(ctx context.Context, name string) error {
	return s.change(ctx, name, func(have []*pb.BackupSchedule, at int) []*pb.BackupSchedule {
		return slices.Delete(slices.Clone(have), at, at+1)
	})
}

// Note changes the outcomes of a schedule, or its Run, by fn, which may be called several times.
// CODE_INVALID if it does not exist.
func (s *Schedules) Note(ctx context.Context, name string, fn func(*pb.BackupSchedule)) error {
	return s.change(ctx, name, func(have []*pb.BackupSchedule, at int) []*pb.BackupSchedule {
		all := slices.Clone(have)
		all[at] = proto.CloneOf(have[at])
		fn(all[at])
		return all
	})
}

// change changes the list of schedules, which must contain name.
func (s *Schedules) change(ctx context.Context, name string,
	fn func(have []*pb.BackupSchedule, at int) []*pb.BackupSchedule) error {
	_, err := update(ctx, s.records, rowSchedules,
		func(have *pb.BackupScheduleRecord) (*pb.BackupScheduleRecord, []change, error) {
			at, there := slices.BinarySearchFunc(have.GetSchedules(), name, byScheduleName)
			if !there {
				return nil, nil, refuse(pb.Error_CODE_INVALID,
					"there is no schedule %q of backups: `percolator backup schedule ls` lists them", name)
			}
			return &pb.BackupScheduleRecord{Schedules: fn(have.Schedules, at)}, nil, nil
		})
	return err
}

// checkSchedule rejects an invalid schedule.
func checkSchedule(s *pb.BackupSchedule) error {
	every := time.Duration(s.EveryMs) * time.Millisecond
	switch {
	case s.Name == "" || len(s.Name) > maxScheduleName ||
		strings.ContainsFunc(s.Name, func(r rune) bool { return !unicode.IsGraphic(r) }):
		return refuse(pb.Error_CODE_INVALID, "a schedule's name must have 1 to %d printable bytes",
			maxScheduleName)
	case s.Location == "" || len(s.Location) > maxScheduleLocation:
		return refuse(pb.Error_CODE_INVALID, "a location must have 1 to %d bytes", maxScheduleLocation)
	case strings.HasSuffix(s.Location, "://"),
		!strings.Contains(s.Location, "://") && !strings.HasPrefix(s.Location, "/"):
		return refuse(pb.Error_CODE_INVALID, "location %q is neither the URL of a bucket nor an absolute "+
			"path: any node may lead meta and write there", s.Location)
	case every < minScheduleEvery:
		return refuse(pb.Error_CODE_INVALID, "backups every %v: the minimum interval is %v", every,
			minScheduleEvery)
	case s.FullEveryMs < 0 || s.FullEveryMs > 0 && s.FullEveryMs < s.EveryMs:
		return refuse(pb.Error_CODE_INVALID, "full-every must not be shorter than every")
	case s.KeepMs < 0 || s.KeepMs > 0 && s.KeepMs < s.EveryMs:
		return refuse(pb.Error_CODE_INVALID, "backups must be kept for at least the interval between two")
	case len(s.Tables) > maxScheduleTables:
		return refuse(pb.Error_CODE_INVALID, "a schedule names at most %d tables, or none for all",
			maxScheduleTables)
	}
	return nil
}

func byScheduleName(s *pb.BackupSchedule, name string) int { return strings.Compare(s.Name, name) }
