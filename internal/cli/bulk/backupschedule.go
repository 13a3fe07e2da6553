package bulk

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
)

// The commands for scheduled backups, which the cluster creates, and for the removal of old backups.

// backupSchedule groups the commands for schedules.
func backupSchedule(d *shell.Deps) *cobra.Command {
	return shell.Group("schedule", "Manage the schedules by which the cluster makes backups",
		"backup schedule set nightly 's3://backups?region=eu-central-1' --every 24h --keep 30d\n"+
			"backup schedule ls\n"+
			"backup schedule run nightly\n"+
			"backup schedule rm nightly",
		scheduleSet(d), scheduleList(d), scheduleRun(d), scheduleRemove(d))
}

// durationInDays is a flag for a duration that may begin with days: 30d, 1d12h.
type durationInDays time.Duration

// Set implements pflag.Value.
func (v *durationInDays) Set(text string) error {
	d, ok := shell.ParseAge(text)
	if !ok || text == "now" {
		return shell.Usagef(nil, "%q is not a duration, such as 12h or 30d", text)
	}
	*v = durationInDays(d)
	return nil
}

// String implements pflag.Value.
func (v *durationInDays) String() string { return time.Duration(*v).String() }

// Type implements pflag.Value.
func (*durationInDays) Type() string { return "duration" }

func (v *durationInDays) millis() int64 { return time.Duration(*v).Milliseconds() }

func scheduleSet(d *shell.Deps) *cobra.Command {
	var every, fullEvery, keep durationInDays
	every = durationInDays(24 * time.Hour)
	rate := shell.ByteSize(createRate)
	cmd := &cobra.Command{
		Use:   "set NAME LOCATION",
		Short: "Create or replace a schedule of backups",
		Long: `Create a schedule of backups, or replace the one of that name. The node that leads meta makes a backup
every --every, from --first on; if it fails, another node resumes the backup. One backup makes up for all runs missed
while the cluster was down. A failed backup is retried every few minutes; doctor, a metric and an alert report it.

With --full-every the backups in between are incremental, and history is held for them (backup create --hold). With
--keep, backups are removed once no restore of any time within the last --keep needs them.

LOCATION is a directory or a bucket: s3://NAME?region=REGION. Any node may have to write there: a directory must be
shared by all of them, such as a network file system, and credentials must be in each node's environment.`,
		Example: "backup schedule set nightly /mnt/backups --first 2026-11-28T02:00:00Z --keep 30d\n" +
			"backup schedule set hourly 's3://backups?region=eu-central-1' --every 1h --full-every 24h --keep 30d",
	}
	flags := cmd.Flags()
	flags.Var(&every, "every", "time between two backups, at least 1m")
	flags.Var(&fullEvery, "full-every", "time between two full backups; the others are incremental; 0: all are full")
	flags.Var(&keep, "keep", "remove backups that no restore of a time within it needs; 0: remove none")
	flags.Var(&rate, "rate", "maximum bytes of rows and values a second, such as 32MiB; 0: no limit")
	first := flags.String("first", "", "time of the first backup (2026-01-31T12:00:00Z); default: now")
	tables := flags.StringArray("table", nil, "only this table; repeatable")
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, args []string) error {
		at, err := shell.ParseAt(cmd, *first)
		if err != nil || *first != "" && !at.ByClock {
			return shell.Usagef(cmd, "--first %s is not a time such as 2026-01-31T12:00:00Z", *first)
		}
		set := &pb.BackupSchedule{
			Name: args[0], Location: args[1], EveryMs: every.millis(), FullEveryMs: fullEvery.millis(),
			KeepMs: keep.millis(), Rate: uint64(rate), Tables: *tables,
		}
		if at.ByClock {
			set.FirstUnixMs = at.TS.Millis()
		}
		return orderSchedule(ctx, s, &pb.BackupSchedulesRequest{Set: set}, "schedule %s is set", args[0])
	})
}

// orderSchedule sends a request to change schedules and prints the result.
func orderSchedule(ctx context.Context, s *shell.Session, req *pb.BackupSchedulesRequest, done, name string) error {
	_, err := s.Admin.BackupSchedules(ctx, req)
	return s.Out.Done(err, done, inspect.Printable(name))
}

func scheduleRun(d *shell.Deps) *cobra.Command {
	return d.ClientCommand(&cobra.Command{
		Use:     "run NAME",
		Short:   "Make a backup of a schedule now",
		Long:    `Start a backup of the schedule within ten seconds, on the node that leads meta. jobs shows its progress.`,
		Example: "backup schedule run nightly",
	}, func(ctx context.Context, s *shell.Session, args []string) error {
		return orderSchedule(ctx, s, &pb.BackupSchedulesRequest{Run: args[0]}, "schedule %s will run within ten seconds", args[0])
	})
}

func scheduleRemove(d *shell.Deps) *cobra.Command {
	return d.ClientCommand(&cobra.Command{
		Use:     "rm NAME",
		Short:   "Remove a schedule; its backups stay",
		Example: "backup schedule rm nightly",
	}, func(ctx context.Context, s *shell.Session, args []string) error {
		return orderSchedule(ctx, s, &pb.BackupSchedulesRequest{Remove: args[0]}, "removed schedule %s", args[0])
	})
}

// scheduleJSON is a schedule in JSON. Durations are in seconds.
type scheduleJSON struct {
	Name       string    `json:"name"`
	Location   string    `json:"location"`
	Tables     []string  `json:"tables,omitempty"` // none: all
	First      time.Time `json:"first"`
	Every      int64     `json:"every"`
	FullEvery  int64     `json:"full_every"` // 0: all are full
	Keep       int64     `json:"keep"`       // 0: for ever
	Rate       uint64    `json:"rate"`
	Success    time.Time `json:"last_success,omitzero"`
	Backup     string    `json:"last_backup,omitempty"`
	Tried      time.Time `json:"last_attempt,omitzero"`
	Error      string    `json:"error,omitempty"`
	PruneError string    `json:"prune_error,omitempty"`
}

func scheduleList(d *shell.Deps) *cobra.Command {
	return d.ClientCommand(&cobra.Command{
		Use:     "ls",
		Short:   "List the schedules of backups and their last outcomes",
		Example: "backup schedule ls\nbackup schedule ls -o json",
	}, func(ctx context.Context, s *shell.Session, _ []string) error {
		resp, err := s.Admin.BackupSchedules(ctx, &pb.BackupSchedulesRequest{})
		if err != nil {
			return err
		}
		list := s.Out.Listing("NAME, EVERY, FULL EVERY, KEEP, LAST SUCCESS (UTC), STATE, LOCATION")
		for _, b := range resp.GetSchedules() {
			state := "ok"
			switch {
			case b.Error != "":
				state = "failing: " + inspect.Shortened(b.Error, inspect.ValueWidth)
			case b.PruneError != "":
				state = "cannot prune: " + inspect.Shortened(b.PruneError, inspect.ValueWidth)
			case b.Run:
				state = "starting"
			case b.SuccessUnixMs == 0:
				state = "none yet"
			}
			success := time.UnixMilli(b.SuccessUnixMs).UTC().Format(timeLayout)
			list.Add(newScheduleJSON(b), inspect.Printable(b.Name), daysText(b.EveryMs), daysText(b.FullEveryMs),
				daysText(b.KeepMs), shell.OrDash(b.SuccessUnixMs != 0, success), state, inspect.Printable(b.Location))
		}
		return list.End()
	})
}

func newScheduleJSON(b *pb.BackupSchedule) *scheduleJSON {
	j := &scheduleJSON{
		Name: b.Name, Location: b.Location, Tables: b.Tables, First: time.UnixMilli(b.FirstUnixMs).UTC(),
		Every: b.EveryMs / 1000, FullEvery: b.FullEveryMs / 1000, Keep: b.KeepMs / 1000, Rate: b.Rate,
		Backup: b.Backup, Error: b.Error, PruneError: b.PruneError,
	}
	if b.SuccessUnixMs != 0 {
		j.Success = time.UnixMilli(b.SuccessUnixMs).UTC()
	}
	if b.TriedUnixMs != 0 {
		j.Tried = time.UnixMilli(b.TriedUnixMs).UTC()
	}
	return j
}

// daysText formats a duration: whole days from 2d on as days, others as time.Duration does, without
// the zeros at the end; "-" for 0.
func daysText(ms int64) string {
	d, day := time.Duration(ms)*time.Millisecond, 24*time.Hour
	switch {
	case d == 0:
		return "-"
	case d >= 2*day && d%day == 0:
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// backupPrune returns the command that removes old backups, without connecting to a node.
func backupPrune(d *shell.Deps) *cobra.Command {
	var keep durationInDays
	cmd := &cobra.Command{
		Use:   "prune LOCATION --keep DURATION --yes",
		Short: "Remove backups that no restore of recent times needs",
		Long: `Remove the backups of LOCATION that no restore of any time within the last --keep needs. A full backup and
its increments are removed together; the newest of each cluster and set of tables always stays, and so do backups that are
unfinished or damaged.` + locationHelp,
		Example: "backup prune /backups --keep 30d --yes",
	}
	cmd.Flags().Var(&keep, "keep", "period within which any time stays restorable")
	d.Confirmed(cmd, "backups of %s that are older than --keep are removed for good")
	shell.Before(cmd, func(cmd *cobra.Command, _ []string) error {
		if keep <= 0 {
			return shell.Usagef(cmd, "--keep must be a positive duration, such as 30d")
		}
		return nil
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return atLocation(cmd.Context(), backup.Open, args[0], func(l *backup.Location) error {
			removed, err := backup.Prune(cmd.Context(), l, backup.PruneOptions{
				Keep: time.Duration(keep), Now: time.Now(),
			})
			if err != nil {
				return err
			}
			for _, name := range removed {
				d.Out.Note("removed %s", inspect.Printable(name))
			}
			return d.Out.Answer(struct {
				Removed []string `json:"removed"`
			}{append([]string{}, removed...)}, "%d backups removed", len(removed))
		})
	}
	return d.WithOutput(cmd)
}
