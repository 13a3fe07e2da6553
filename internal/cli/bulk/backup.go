package bulk

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// The commands `backup` and `restore`, and their progress. Package backup copies the tables into a
// directory or a bucket, and back.

// BackupCommand groups the commands for backups.
func BackupCommand(d *shell.Deps) *cobra.Command {
	return shell.Group("backup", "Make, schedule, list, verify and remove backups",
		"backup create /backups\n"+
			"backup create /backups --incremental\n"+
			"backup ls /backups\n"+
			"backup verify /backups\n"+
			"backup prune /backups --keep 30d --yes\n"+
			"backup schedule set nightly /mnt/backups --every 24h --keep 30d\n"+
			"backup release 20261122T221500.123Z-full",
		backupCreate(d), backupList(d), backupVerify(d), backupPrune(d), backupSchedule(d), backupRelease(d))
}

// locationHelp ends the help of commands that take LOCATION.
const locationHelp = `

LOCATION is a directory, or a bucket: s3://NAME?region=REGION, with the usual AWS credentials
(AWS_ACCESS_KEY_ID, ~/.aws, a role). For other S3-compatible servers add &endpoint=URL&use_path_style=true;
&prefix=FOLDER/ selects a part of a bucket.`

// copyFlags are the common flags of the commands that copy data.
type copyFlags struct {
	workers int
	rate    shell.ByteSize
	quiet   bool
}

func (f *copyFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&f.workers, "workers", backup.DefaultWorkers, "number of row ranges processed concurrently")
	flags.Var(&f.rate, "rate", "maximum bytes of rows and values a second, such as 32MiB; 0: no limit")
	flags.BoolVar(&f.quiet, "quiet", false, "do not print progress")
}

// options converts the flags to options of package backup, which report progress to m.
func (f *copyFlags) options(cmd *cobra.Command, m *shell.Meter) (backup.Options, error) {
	o := backup.Options{Workers: f.workers, Rate: int64(min(f.rate, math.MaxInt64))}
	if f.workers < 1 {
		return o, shell.Usagef(cmd, "--workers must be at least 1")
	}
	o.By = shell.WhoAmI()
	name := m.Name
	o.Progress = func(p backup.Progress) {
		m.Name = fmt.Sprintf("%s: %d of %d ranges", name, p.Done, p.Ranges)
		m.Show(shell.Tally{Rows: p.Records, Bytes: p.Bytes})
	}
	return o, nil
}

// atLocation opens the location, by backup.Open or backup.OpenNew, calls fn and closes it.
func atLocation(ctx context.Context, open func(context.Context, string) (*backup.Location, error),
	name string, fn func(*backup.Location) error) error {
	l, err := open(ctx, name)
	if err == nil {
		err = errors.Join(fn(l), l.Close())
	}
	if errors.Is(err, backup.ErrNotFound) {
		err = shell.WithHint(err, "`backup ls LOCATION` lists the backups, `backup create LOCATION` creates one")
	}
	return err
}

// backupJSON is a backup in JSON.
type backupJSON struct {
	Name    string    `json:"name"`
	State   string    `json:"state"` // whole, unfinished, damaged
	Cluster string    `json:"cluster,omitempty"`
	Parent  string    `json:"parent,omitempty"`
	Since   uint64    `json:"since,omitempty"`
	At      uint64    `json:"at,omitempty"`
	Time    time.Time `json:"time,omitzero"`
	Tables  []string  `json:"tables,omitempty"`
	Files   int       `json:"files,omitempty"`
	Records int64     `json:"records,omitempty"`
	Bytes   int64     `json:"bytes,omitempty"` // of all data files
	Error   string    `json:"error,omitempty"`
}

// newBackupJSON describes a complete backup.
func newBackupJSON(m *backup.Manifest) *backupJSON {
	b := &backupJSON{
		Name: m.Name, State: "whole", Cluster: m.Cluster, Parent: m.Parent, Since: m.Since, At: m.At,
		Time: m.Time, Files: len(m.Files),
	}
	b.Bytes, b.Records = m.Size()
	for _, t := range m.Tables {
		b.Tables = append(b.Tables, t.Name)
	}
	return b
}

// createRate is the default of --rate in bytes a second. It leaves a loaded cluster of two cores,
// which also run the command, at least 0.8 of its throughput (docs/performance.md).
const createRate = 8 << 20

// backupCreate returns the command that creates a backup or resumes an interrupted one.
func backupCreate(d *shell.Deps) *cobra.Command {
	copying := copyFlags{rate: createRate}
	o := backup.CreateOptions{}
	cmd := &cobra.Command{
		Use:   "create LOCATION",
		Short: "Back up all or selected tables as of now",
		Long: `Copy all tables, as they are at one timestamp, into a new folder of LOCATION. The cluster continues to serve;
history is held at that timestamp until the backup is complete.

With --incremental, copy only what was committed since the newest backup in LOCATION, in every version: the two
together can be restored at any timestamp from the first one's to the second one's. It needs all history since then, so the
time between two backups must be shorter than the history that the cluster keeps (cluster show, HISTORY), unless it is held.

With --hold the cluster keeps the history that the next increment needs until that increment is complete. The increment
then takes over the hold, with or without --hold. A hold ends after collection-max-hold. It costs disk: every version of
every cell is kept. ` + "`cluster show`" + ` lists what is held, and ` + "`backup release`" + ` ends it.

Running the same command again resumes an interrupted backup at its original timestamp;
--restart removes it and starts over.

It reads 8 MiB a second by default, so that a small cluster continues to serve; --rate 0 removes the limit. Its process
runs at a low priority (nice 10).` + locationHelp,
		Example: "backup create /backups\n" +
			"backup create /backups --incremental --rate 64MiB\n" +
			"backup create 's3://backups?region=eu-central-1' --table bank",
	}
	copying.register(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.Incremental, "incremental", false, "copy only changes since the newest backup in LOCATION")
	flags.BoolVar(&o.Hold, "hold", false, "keep history for the next increment, up to collection-max-hold")
	flags.StringArrayVar(&o.Tables, "table", nil, "only this table; repeatable")
	flags.BoolVar(&o.Restart, "restart", false, "remove an interrupted backup and start over")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		m := d.Out.NewMeter("backup", shell.Tally{}, copying.quiet)
		if o.Options, err = copying.options(cmd, m); err != nil {
			return err
		}
		giveWay()
		o.Resumed = func(name string) { d.Out.Note("resuming %s", inspect.Printable(name)) }
		return d.Conn.RunLong(cmd, func(ctx context.Context, s *shell.Session) error {
			return atLocation(ctx, backup.OpenNew, args[0], func(l *backup.Location) error {
				made, err := backup.Create(ctx, s.Client, l, o)
				if err != nil {
					return explainCreate(d, err)
				}
				b := newBackupJSON(made)
				if !made.HasPending {
					d.Out.Note("timers and weak notifications are omitted: they need an operator's certificate and nodes of this build")
				}
				if made.PendingTruncated {
					d.Out.Note("too many weak notifications were pending: some that ran while the backup began may be missing; " +
						"after a restore, `observer replay` runs a weak observer for every row")
				}
				m.Name = "backup"
				m.End(shell.Tally{Rows: b.Records, Bytes: b.Bytes}, made.Name)
				return d.Out.Answer(b, "%s: %d records in %d files, %s, as of %s UTC", made.Name, b.Records,
					b.Files, shell.ByteText(b.Bytes), made.Time.Format(timeLayout))
			})
		})
	}
	return d.WithClient(cmd)
}

const timeLayout = "2006-01-02 15:04:05.000"

// explainCreate adds a remedy to an error of create.
func explainCreate(d *shell.Deps, err error) error {
	switch {
	case errors.Is(err, backup.ErrHistoryGone):
		return shell.WithHint(err, "make a full backup; --hold keeps history until the next increment, `cluster set history=…` keeps more, --rate may be too low")
	case errors.Is(err, backup.ErrNotFound), errors.Is(err, backup.ErrTable),
		errors.Is(err, backup.ErrDamaged):
		return err
	}
	return d.Conn.WithResumeHint(err, "the completed ranges")
}

// backupList returns the command that lists backups, without connecting to a node.
func backupList(d *shell.Deps) *cobra.Command {
	return d.WithOutput(&cobra.Command{
		Use:   "ls LOCATION",
		Short: "List the backups of a location, the oldest first",
		Long: `List the backups of LOCATION by their manifests. Run "backup verify" to check their contents. The
exit code is 1 if there are none.` + locationHelp,
		Example: "backup ls /backups\n" +
			"backup ls /backups -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return atLocation(cmd.Context(), backup.Open, args[0], func(l *backup.Location) error {
				return listBackups(cmd.Context(), l, d.Out)
			})
		},
	})
}

func listBackups(ctx context.Context, l *backup.Location, out *shell.Printer) error {
	listed, err := l.List(ctx)
	if err != nil {
		return err
	}
	if len(listed) == 0 {
		return coded.Errorf("", "%w: the location contains no backups", backup.ErrNotFound)
	}
	list := out.Listing("BACKUP, STATE, UPON, TABLES, RECORDS, SIZE", 4, 5)
	for _, b := range listed {
		switch {
		case b.Err != nil:
			list.Add(&backupJSON{Name: b.Name, State: "damaged", Error: b.Err.Error()},
				inspect.Printable(b.Name), "damaged")
		case b.Manifest == nil:
			list.Add(&backupJSON{Name: b.Name, State: "unfinished"}, inspect.Printable(b.Name), "unfinished")
		default:
			j := newBackupJSON(b.Manifest)
			list.Add(j, inspect.Printable(j.Name), j.State,
				shell.OrDash(j.Parent != "", inspect.Printable(j.Parent)), shell.JoinRows(j.Tables),
				j.Records, shell.ByteText(j.Bytes))
		}
	}
	return list.End()
}

// backupRelease returns the command that releases the history held for the next increment of
// backups. Its request needs no hold's token, because operators may release every hold.
func backupRelease(d *shell.Deps) *cobra.Command {
	return d.ClientCommand(&cobra.Command{
		Use:   "release BACKUP...",
		Short: "Release the history held for the next increment of a backup",
		Long: `Release the history that --hold keeps for the next increment of the backups. Versions older than the
cluster's history are then collected, and a later increment is refused. ` + "`cluster show`" + ` lists them.`,
		Example: "backup release 20261122T221500.123Z-full",
	}, func(ctx context.Context, s *shell.Session, args []string) error {
		req := &pb.HoldBackupRequest{}
		for _, name := range args {
			req.Release = append(req.Release, &pb.BackupHold{Backup: name})
		}
		r, err := s.Admin.HoldBackup(ctx, req)
		if err != nil {
			return err
		}
		return s.Out.Answer(r, "released the history held for %s", inspect.Printable(strings.Join(args, ", ")))
	})
}

// backupVerify returns the command that verifies backups, without connecting to a node.
func backupVerify(d *shell.Deps) *cobra.Command {
	var copying copyFlags
	cmd := &cobra.Command{
		Use:   "verify LOCATION [BACKUP]",
		Short: "Read backups and compare every byte with its checksum",
		Long: `Read all backups of LOCATION, or BACKUP and its parents, and compare every byte with its checksum, every
record with the range and the times of its file, and every backup with its parent. The exit code is 1 if anything is
wrong, or if there is no complete backup.` + locationHelp,
		Example: "backup verify /backups\n" +
			"backup verify /backups 20261122T221500.123Z-full",
	}
	copying.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		m := d.Out.NewMeter("verify", shell.Tally{}, copying.quiet)
		o := backup.VerifyOptions{}
		if o.Options, err = copying.options(cmd, m); err != nil {
			return err
		}
		if len(args) > 1 {
			o.Name = args[1]
		}
		return atLocation(cmd.Context(), backup.Open, args[0], func(l *backup.Location) error {
			v, err := backup.Verify(cmd.Context(), l, o)
			if err != nil {
				return err
			}
			return reportVerified(v, d.Out)
		})
	}
	return d.WithOutput(cmd)
}

func reportVerified(v *backup.Verified, out *shell.Printer) error {
	for _, name := range v.Unfinished {
		out.Note("%s is unfinished and was not verified", inspect.Printable(name))
	}
	var size, records int64
	for _, m := range v.Backups {
		b, r := m.Size()
		size, records = size+b, records+r
	}
	faults := make([]string, len(v.Faults))
	for i, err := range v.Faults {
		faults[i] = err.Error()
	}
	err := out.Answer(struct {
		Backups int      `json:"backups"`
		Records int64    `json:"records"`
		Bytes   int64    `json:"bytes"`
		Faults  []string `json:"faults"`
	}{len(v.Backups), records, size, faults},
		"%d backups, %d records, %s: %d faults", len(v.Backups), records, shell.ByteText(size), len(faults))
	if len(v.Faults) > 0 {
		err = errors.Join(err, shell.WithHint(errors.Join(v.Faults...),
			"do not rely on a damaged backup or its increments: make a full one, and keep this one for salvage"))
	}
	return err
}

// RestoreCommand returns the command that starts or resumes a restore.
func RestoreCommand(d *shell.Deps) *cobra.Command {
	var copying copyFlags
	o := backup.RestoreOptions{}
	cmd := &cobra.Command{
		Use:   "restore LOCATION",
		Short: "Restore tables from a backup, at any timestamp that it covers",
		Long: `Write the tables of a backup, as they were at one timestamp, into this cluster,
of whatever size. By default that is all tables and the cluster's policy as the newest backup of
LOCATION has them: the settings of the policy that change are printed, and http-login is not taken
back. --no-policy, or --table, leaves the policy as it is. --at names an earlier timestamp that a
chain of backups covers, from its full one on. An existing table must be empty; --table
OLD=NEW restores it under another name.

Values keep the timestamps that they were committed at, so the cluster's clocks must not be
behind the backup's. Reads as of a time before the restore ended are refused. Observers do not
run for what is restored; with --notify they run for changes that they had not seen at that
timestamp. Observers themselves come with the programs that have them. Grants and the
expiry of cells come back with their tables; cells that are too old by now are then deleted, unless --no-expiry is given.

A table cannot be opened until it is complete: attempts fail with an error that it is being
restored. Running the same command again resumes an interrupted restore; ` + "`table drop`" + `
discards it.` + locationHelp,
		Example: "restore /backups\n" +
			"restore /backups --at 2026-11-22T22:15:00Z\n" +
			"restore /backups --table bank=bank_old",
	}
	copying.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.Backup, "backup", "", "the backup to restore; default: the newest")
	at := flags.String("at", "", "a timestamp, a time (2026-01-31T12:00:00Z) or an age "+
		"(5m, 1d) that the backup covers; default: the backup's own")
	tables := flags.StringArray("table", nil, "only this table, as NAME or OLD=NEW; repeatable")
	noPolicy := flags.Bool("no-policy", false, "do not change the cluster's policy")
	flags.BoolVar(&o.NoExpiry, "no-expiry", false, "restore tables without their expiry, so that no cell of them expires")
	flags.BoolVar(&o.Notify, "notify", false, "have observers run for changes that they had not "+
		"seen")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		m := d.Out.NewMeter("restore", shell.Tally{}, copying.quiet)
		if o.Options, err = copying.options(cmd, m); err != nil {
			return err
		}
		wanted, err := shell.ParseAt(cmd, *at)
		if err != nil {
			return err
		}
		o.Tables, o.Policy = map[string]string{}, len(*tables) == 0 && !*noPolicy
		for _, t := range *tables {
			from, to, renamed := strings.Cut(t, "=")
			if !renamed {
				to = from
			}
			if from == "" || to == "" || o.Tables[from] != "" {
				return shell.Usagef(cmd, "--table %s: give each table once, as NAME or OLD=NEW", t)
			}
			o.Tables[from] = to
		}
		return d.Conn.RunLong(cmd, func(ctx context.Context, s *shell.Session) error {
			ts, err := wanted.Resolve(ctx, s)
			if err != nil {
				return err
			}
			o.At = uint64(ts)
			return atLocation(ctx, backup.Open, args[0], func(l *backup.Location) error {
				return runRestore(ctx, d, s, l, o, m)
			})
		})
	}
	return d.WithClient(cmd)
}

// runRestore runs the restore and prints the result.
func runRestore(ctx context.Context, d *shell.Deps, s *shell.Session, l *backup.Location,
	o backup.RestoreOptions, m *shell.Meter) error {
	settings := []backup.Setting{}
	o.Settings = func(changed []backup.Setting) {
		settings = changed
		noteSettings(d, changed)
	}
	r, err := backup.Restore(ctx, s.Client, l, o)
	switch {
	case errors.Is(err, backup.ErrNotEmpty), errors.Is(err, backup.ErrTable),
		errors.Is(err, backup.ErrNotFound):
		return err
	case errors.Is(err, backup.ErrDamaged):
		return shell.WithHint(err, "`backup verify` finds all damage; an earlier backup may "+
			"be intact; `table drop` discards the tables restored so far")
	case err != nil:
		return d.Conn.WithResumeHint(err, "the rows restored so far; until it completes the tables cannot be opened")
	}
	m.Name = "restore"
	m.End(shell.Tally{Rows: r.Records}, r.Backup)
	for _, name := range r.Before {
		d.Out.Note("table %s was restored by an earlier run and is left unchanged", inspect.Printable(name))
	}
	for _, name := range r.LeftOut {
		d.Out.Note("table %s was dropped before the backup ended, and is omitted", inspect.Printable(name))
	}
	for _, g := range r.Granted {
		d.Out.Note("table %s is restricted to its grants, as in the backup: %s",
			inspect.Printable(g.Table), grantText(g.Grants))
	}
	for _, name := range r.Expiring {
		d.Out.Note("table %s has the expiry of the backup: cells that are too old by now are deleted soon",
			inspect.Printable(name))
	}
	for _, name := range r.Ungranted {
		d.Out.Note("the backup contains no grants of table %s, which is now open to all clients; "+
			"%s restricts it", inspect.Printable(name), d.Out.Advice("`grant`"))
	}
	return d.Out.Answer(struct {
		Backup   string   `json:"backup"`
		At       uint64   `json:"at"`
		Tables   []string `json:"tables"`
		Before   []string `json:"restored_before,omitempty"`
		Records  int64    `json:"records"`
		Pending  int64    `json:"pending"` // timers set, for restored timers and weak notifications
		Notified int64    `json:"notified"`

		Settings []backup.Setting `json:"settings"`
	}{r.Backup, r.At, r.Tables, r.Before, r.Records, r.Pending, r.Notified, settings},
		"%d tables restored as of %s UTC, %d records", len(r.Tables)-len(r.Before),
		inspect.Clock(mvcc.Timestamp(r.At)), r.Records)
}

// noteSettings prints the settings of the cluster's policy that the restore has changed, and those
// that it has kept although the backup has another value.
func noteSettings(d *shell.Deps, settings []backup.Setting) {
	for _, s := range settings {
		if !s.Kept {
			d.Out.Note("the cluster's policy: %s=%s -> %s, as in the backup (--no-policy keeps it)",
				s.Name, s.From, s.To)
			continue
		}
		d.Out.Note("the cluster's policy: %s=%s stays; the backup has %s, which %s sets", s.Name, s.From,
			s.To, d.Out.Advice("`cluster set "+s.Name+"="+s.To+"`"))
	}
}

// grantText lists the first few grants.
func grantText(grants []backup.Grant) string {
	var names []string
	for _, g := range grants[:min(len(grants), shell.MaxNames)] {
		names = append(names, inspect.Printable(g.Name)+" ("+g.Role+")")
	}
	if more := len(grants) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
