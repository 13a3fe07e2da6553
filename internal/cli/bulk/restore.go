package bulk

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// `restore` writes tables of a backup into a cluster, by package backup.

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
			ts, err := wanted.Resolve(d.Out, func() (mvcc.Timestamp, error) { return s.Client.Timestamp(ctx) })
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
		Pending  int64    `json:"pending"` // timers set, one per timer and weak notification
		Notified int64    `json:"notified"`

		Settings []backup.Setting `json:"settings"`
	}{r.Backup, r.At, r.Tables, r.Before, r.Records, r.Pending, r.Notified, settings},
		"%d tables restored as of %s UTC, %d records", len(r.Tables)-len(r.Before),
		inspect.Clock(mvcc.Timestamp(r.At)), r.Records)
}

// noteSettings prints the settings of the cluster's policy that changed, or that differ from the
// backup.
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
