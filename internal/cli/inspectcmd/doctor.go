package inspectcmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/health"
)

// `doctor` says what is wrong with a cluster. The node that answers asks the others and
// judges (internal/health); here it is only printed.

// DoctorCommand returns the command that lists the problems of the whole cluster.
func DoctorCommand(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "List the cluster's problems and their remedies",
		Long: `List the problems of the cluster and their remedies, the worst first:
nodes that are down or do not answer, tablets without a quorum, disks, clocks, certificates,
observers that are behind, paused, stuck or have parked notifications, old locks. Any node
can answer, even without a quorum.

The exit code is 1 if there is a warning or worse; findings whose kind --ignore names are
printed but do not count. With -o json each finding is an object; the
last line is a summary.`,
		Example: "doctor\ndoctor --addr 10.0.0.2 -o json\ndoctor --ignore disk-low,versions-mixed",
	}
	ignored := cmd.Flags().StringSlice("ignore", nil,
		"kinds of findings that do not affect the exit code")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, kind := range *ignored {
			if !slices.Contains(health.Kinds(), kind) {
				return shell.Usagef(cmd, "--ignore %s: unknown kind of finding; the kinds are %s", kind,
					strings.Join(health.Kinds(), ", "))
			}
		}
		return nil
	}
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, _ []string) error {
		status, err := s.Admin.ClusterStatus(ctx, &pb.ClusterStatusRequest{})
		if err != nil {
			return err
		}
		return diagnose(d.Out, status, *ignored)
	})
}

// findingJSON is a finding in JSON.
type findingJSON struct {
	Severity string `json:"severity"` // info, warning or critical
	Kind     string `json:"kind"`     // as in docs/operating/alerts.md
	Subject  string `json:"subject"`
	Text     string `json:"text"`
	Remedy   string `json:"remedy"`
}

// clusterJSON sums up a cluster in JSON.
type clusterJSON struct {
	Nodes    int   `json:"nodes"`
	Answer   int   `json:"answer"`   // nodes that answered
	Survives int32 `json:"survives"` // nodes that may fail; -1: some tablets have no quorum now
	Findings int   `json:"findings"`
}

// diagnose prints the findings and a line that sums up. It fails if there is a warning or worse
// of a kind that is not ignored.
func diagnose(out *shell.Printer, status *pb.ClusterStatusResponse, ignored []string) error {
	sum := clusterJSON{
		Nodes: len(status.GetNodes()), Survives: status.GetSurvives(),
		Findings: len(status.GetFindings()),
	}
	for _, n := range status.GetNodes() {
		if n.GetStatus() != nil {
			sum.Answer++
		}
	}
	wrong := 0
	for _, f := range status.GetFindings() {
		severity := strings.ToLower(strings.TrimPrefix(f.GetSeverity().String(), "SEVERITY_"))
		if f.GetSeverity() >= pb.Severity_SEVERITY_WARNING && !slices.Contains(ignored, f.GetKind()) {
			wrong++
		}
		if out.JSON() {
			err := out.Object(findingJSON{
				severity, f.GetKind(), f.GetSubject(), f.GetText(), f.GetRemedy(),
			})
			if err != nil {
				return err
			}
			continue
		}
		if err := out.Print("%-8s  %s: %s [%s]", strings.ToUpper(severity), f.GetSubject(),
			f.GetText(), f.GetKind()); err != nil {
			return err
		}
		if err := out.Print("          %s", out.WithOwnName(f.GetRemedy())); err != nil {
			return err
		}
	}
	if err := out.Answer(sum, "%s", summary(sum)); err != nil {
		return err
	}
	if wrong > 0 {
		return fmt.Errorf("the cluster needs attention: %d of %d findings are warnings or worse",
			wrong, sum.Findings)
	}
	return nil
}

func summary(c clusterJSON) string {
	text := fmt.Sprintf("%d of %d nodes answer; ", c.Answer, c.Nodes)
	switch {
	case c.Survives < 0:
		text += "some tablets have no quorum"
	case c.Survives == 0:
		text += "no node may fail"
	case c.Survives == 1:
		text += "any one node may fail"
	default:
		text += fmt.Sprintf("any %d nodes may fail", c.Survives)
	}
	if c.Findings == 0 {
		text += "; nothing is wrong"
	}
	return text
}
