package inspectcmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
)

// `jobs` says what the cluster works on. The node that answers gathers it from all of them.

// JobsCommand returns the command that lists jobs.
func JobsCommand(d *shell.Deps) *cobra.Command {
	return d.ClientCommand(&cobra.Command{
		Use:   "jobs",
		Short: "List running work: backups, restores, back-fills, drains, moves, new tables",
		Long: `List the work of the cluster and its clients, and its progress: backups and restores, back-fills of
observers, drains of nodes, moves of replicas, tablets of the split keys of tables. Running jobs come first;
finished backups and restores are shown for an hour, or until the node that they reported to restarts.

A job that has not reported for 15 seconds is silent: its process has ended, or cannot reach a node. A restore that
is unfinished keeps its table closed until the same restore is run again, or the table is dropped. A table whose split
keys are unfinished can be used; the same ` + "`table create`" + ` completes them.`,
		Example: "jobs\njobs -o json",
	}, listJobs)
}

// listJobs prints a line for each job, and why some do not progress.
func listJobs(ctx context.Context, s *shell.Session, _ []string) error {
	status, err := s.Admin.ClusterStatus(ctx, &pb.ClusterStatusRequest{})
	if err != nil {
		return err
	}
	list := s.Out.Listing("JOB, STATE, ABOUT, DONE, RECORDS, SIZE, SINCE, HEARD, BY", 3, 4, 5, 6, 7)
	now := time.UnixMilli(status.GetUnixMs())
	var details strings.Builder
	for _, j := range status.GetJobs() {
		list.Add(j, jobLine(j, now)...)
		if j.Detail != "" {
			fmt.Fprintf(&details, "%s, %s: %s\n", inspect.Printable(j.Kind), inspect.Printable(j.Subject), inspect.Printable(j.Detail))
		}
	}
	if err := list.End(); err != nil {
		return err
	}
	if why := status.GetRestoresUnavailable(); why != "" {
		s.Out.Note("restores that are unfinished may be missing, since meta does not answer: %s", inspect.Printable(why))
	}
	if s.Out.JSON() || details.Len() == 0 {
		return nil
	}
	return s.Out.Print("%s", strings.TrimSuffix(details.String(), "\n"))
}

// jobLine returns the line of one job.
func jobLine(j *pb.Job, now time.Time) []any {
	done, ago := "-", func(unixMs int64) string {
		return shell.OrDash(unixMs != 0, inspect.Span(max(0, now.Sub(time.UnixMilli(unixMs)))))
	}
	switch {
	case j.Total > 0:
		done = fmt.Sprintf("%d of %d %s", j.Done, j.Total, inspect.Printable(j.Unit))
	case j.Done > 0:
		done = fmt.Sprintf("%d %s", j.Done, inspect.Printable(j.Unit))
	}
	return []any{
		inspect.Printable(j.Kind), inspect.Printable(j.State), inspect.Printable(j.Subject), done,
		shell.OrDash(j.Records > 0, fmt.Sprint(j.Records)),
		shell.OrDash(j.Bytes > 0, shell.ByteText(int64(j.Bytes))), ago(j.StartedUnixMs),
		ago(j.SeenUnixMs), shell.OrDash(j.By != "", inspect.Printable(j.By)),
	}
}
