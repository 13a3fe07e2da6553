package node_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/health"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/workload"
)

// scheduled returns the schedule of the name once the condition holds.
func scheduled(ctx context.Context, t *testing.T, n *node.Node, name, what string,
	holds func(*pb.BackupSchedule) bool) (found *pb.BackupSchedule) {
	t.Helper()
	awaitTrue(ctx, t, what, func() bool {
		r, err := handle.Client(n.DB()).Admin().BackupSchedules(ctx, &pb.BackupSchedulesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range r.Schedules {
			if s.Name == name && holds(s) {
				found = s
			}
		}
		return found != nil
	})
	return found
}

func orderBackups(ctx context.Context, t *testing.T, n *node.Node, req *pb.BackupSchedulesRequest) {
	t.Helper()
	if _, err := handle.Client(n.DB()).Admin().BackupSchedules(ctx, req); err != nil {
		t.Fatal(err)
	}
}

// TestBackupsByTheClock: the node that leads meta makes the backups of a schedule, full and
// incremental, records them, and exports their time; a restart in between changes nothing.
func TestBackupsByTheClock(t *testing.T) {
	ctx, dir, to := within(t, time.Minute), t.TempDir(), filepath.Join(t.TempDir(), "backups")
	quiet := func(c *node.Config) { c.HTTP, c.Logger = "127.0.0.1:0", slog.New(slog.DiscardHandler) }
	n := open(t, dir, quiet)
	if err := workload.Prepare(ctx, n.DB(), 1); err != nil {
		t.Fatal(err)
	}
	_, err := handle.Client(n.DB()).Admin().BackupSchedules(ctx, &pb.BackupSchedulesRequest{Set: &pb.BackupSchedule{
		Name: "mistyped", Location: to, EveryMs: 3600_000, Tables: []string{workload.Table, "nosuch"},
	}})
	if err == nil || !strings.Contains(err.Error(), `there is no table "nosuch"`) {
		t.Errorf("a schedule of a table that does not exist: %v", err)
	}
	orderBackups(ctx, t, n, &pb.BackupSchedulesRequest{Set: &pb.BackupSchedule{
		Name: "nightly", Location: to, EveryMs: 3600_000, FullEveryMs: 24 * 3600_000, KeepMs: 24 * 3600_000,
	}})
	first := scheduled(ctx, t, n, "nightly", "the first backup is made", func(s *pb.BackupSchedule) bool {
		return s.Backup != ""
	})
	if first.FullUnixMs != first.SuccessUnixMs || !strings.HasSuffix(first.Backup, "-full") {
		t.Errorf("noted %v", first)
	}
	metrics := scrapeAll(ctx, t, n)["n0"]
	if at := metrics[`percolator_backup_last_success_timestamp_seconds{schedule="nightly"}`]; int64(at) != first.SuccessUnixMs/1000 {
		t.Errorf("exported %v, want %v", at, first.SuccessUnixMs)
	}
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
	n = open(t, dir, quiet)
	orderBackups(ctx, t, n, &pb.BackupSchedulesRequest{Run: "nightly"})
	second := scheduled(ctx, t, n, "nightly", "an increment is made", func(s *pb.BackupSchedule) bool {
		return s.Backup != first.Backup
	})
	if second.Run || second.Error != "" || !strings.HasSuffix(second.Backup, "-incremental") {
		t.Errorf("noted %v", second)
	}
	l, err := backup.Open(ctx, to)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if v, err := backup.Verify(ctx, l, backup.VerifyOptions{}); err != nil || len(v.Faults) > 0 || len(v.Backups) != 2 {
		t.Errorf("verified %v, %v", v, err)
	}
	orderBackups(ctx, t, n, &pb.BackupSchedulesRequest{Remove: "nightly"})
	if r, err := handle.Client(n.DB()).Admin().BackupSchedules(ctx, &pb.BackupSchedulesRequest{}); err != nil || len(r.Schedules) > 0 {
		t.Errorf("left %v, %v", r, err)
	}
}

// failBackup sets a schedule's location to a place where no directory can be created.
func failBackup(ctx context.Context, t *testing.T) (before, after scrape) {
	n := open(t, t.TempDir(), func(c *node.Config) {
		c.HTTP, c.Logger = "127.0.0.1:0", slog.New(slog.DiscardHandler)
	})
	before = scrapeAll(ctx, t, n)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	orderBackups(ctx, t, n, &pb.BackupSchedulesRequest{Set: &pb.BackupSchedule{
		Name: "nightly", Location: filepath.Join(file, "backups"), EveryMs: 3600_000,
	}})
	scheduled(ctx, t, n, "nightly", "it fails", func(s *pb.BackupSchedule) bool { return s.Error != "" })
	status, err := handle.Client(n.DB()).Admin().ClusterStatus(ctx, &pb.ClusterStatusRequest{})
	if err != nil || !hasFinding(status.GetFindings(), health.BackupLate) {
		t.Errorf("found %v, %v", status.GetFindings(), err)
	}
	return before, scrapeAll(ctx, t, n)
}

func hasFinding(findings []*pb.Finding, kind string) bool {
	for _, f := range findings {
		if f.GetKind() == kind {
			return true
		}
	}
	return false
}

func TestFailedBackupIsFound(t *testing.T) {
	_, after := failBackup(within(t, time.Minute), t)
	if after["n0"][`percolator_backup_failing{schedule="nightly"}`] != 1 {
		t.Error("percolator_backup_failing is not exported")
	}
}
