package admin

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/policy"
	"github.com/percolator-go/percolator/internal/wire"
)

// The commands for the cluster's policy, which meta stores.

// ClusterCommand groups the commands for settings of the whole cluster.
func ClusterCommand(d *shell.Deps) *cobra.Command {
	return shell.Group("cluster", "Show and change the cluster's policy, and finish upgrades", "cluster show",
		clusterShow(d), clusterSet(d), clusterFinalize(d))
}

func clusterFinalize(d *shell.Deps) *cobra.Command {
	return d.ClientCommand(&cobra.Command{
		Use:   "finalize",
		Short: "Finish an upgrade: enable the features of the new version, and refuse earlier builds",
		Long: `Finish an upgrade. Until this command, the cluster uses only features of the earlier build, so
that every node can be downgraded to it. Afterwards none can: the directories of the nodes record
the new version, and an earlier build refuses them.

All nodes must support the new version, including nodes that are down; otherwise the command
fails and names those that do not. It may be repeated.`,
		Example: "cluster finalize",
	}, func(ctx context.Context, s *shell.Session, _ []string) error {
		r, err := s.Admin.FinalizeUpgrade(ctx, &pb.FinalizeUpgradeRequest{})
		if err != nil {
			return err
		}
		text := "the cluster is at version %d; there was nothing to finish"
		if r.Changed {
			text = "the cluster is at version %d; earlier builds can no longer join"
		}
		return s.Out.Answer(r, text, r.GetAgreed().GetActive())
	})
}

func clusterShow(d *shell.Deps) *cobra.Command {
	return d.ClientCommand(&cobra.Command{
		Use:     "show",
		Short:   "Show the cluster's policy, which overrides the flags of its nodes",
		Example: "cluster show\ncluster show -o json",
	}, func(ctx context.Context, s *shell.Session, _ []string) error {
		return clusterPolicy(ctx, s, nil)
	})
}

func clusterSet(d *shell.Deps) *cobra.Command {
	var set *pb.Policy
	return d.ClientCommand(&cobra.Command{
		Use:   "set KEY=VALUE...",
		Short: "Change the cluster's policy",
		Long: `Change settings of the cluster's policy, all at once or none. The keys, except
those of clients, are flags of start, which found a new cluster's policy and change nothing
afterwards: a node with a different value reports that in its log and its status, and uses
the policy. A client is known by the name in its certificate, or in plain text by its host;
operators and nodes have no limits.

` + policyKeys() + `
Changes take effect within seconds: with fewer replicas the surplus is removed, and with a shorter
history older versions are collected.`,
		Example: "cluster set history=1h\ncluster set replicas=5 split-size=256MiB",
		PreRunE: func(cmd *cobra.Command, args []string) (err error) {
			if set, err = parsePolicy(args); err != nil {
				return shell.Usagef(cmd, "%v", err)
			}
			return nil
		},
	}, func(ctx context.Context, s *shell.Session, _ []string) error {
		return clusterPolicy(ctx, s, set)
	})
}

// policyKeys lists the keys for the help.
func policyKeys() string {
	var out strings.Builder
	for _, s := range policy.Settings() {
		fmt.Fprintf(&out, "  %-20s %s\n", s.Name, s.About)
	}
	return out.String()
}

// parsePolicy reads KEY=VALUE arguments.
func parsePolicy(args []string) (*pb.Policy, error) {
	set := &pb.Policy{}
	for _, arg := range args {
		name, text, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, fmt.Errorf("%s: write KEY=VALUE, such as history=1h", inspect.Printable(arg))
		}
		s, ok := policy.Named(strings.TrimPrefix(name, "--"))
		if !ok {
			known := map[string]bool{}
			for _, s := range policy.Settings() {
				known[s.Name] = true
			}
			return nil, fmt.Errorf("the policy has no setting %s%s; `cluster show` lists them",
				inspect.Printable(name), shell.Suggestion(name, known))
		}
		if _, twice := s.Get(set); twice {
			return nil, fmt.Errorf("%s is set twice", s.Name)
		}
		value, err := parseSetting(s, text)
		if err != nil {
			return nil, coded.Errorf("", "%s: %w", s.Name, err)
		}
		s.Set(set, value)
	}
	return set, policy.Check(set)
}

// parseSetting reads a value as the flag of the same name does.
func parseSetting(s policy.Setting, text string) (uint64, error) {
	switch s.Kind {
	case policy.Duration:
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 || d%time.Millisecond != 0 {
			return 0, fmt.Errorf("%s is not a duration of 0 or more in whole milliseconds, such as 90m",
				inspect.Printable(text))
		}
		return uint64(d.Milliseconds()), nil
	case policy.Bytes:
		var b shell.ByteSize
		err := b.Set(text)
		return uint64(b), err
	case policy.Switch:
		on, err := strconv.ParseBool(text)
		if err != nil && text != "on" && text != "off" {
			return 0, fmt.Errorf("%s is neither true nor false", inspect.Printable(text))
		}
		if on || text == "on" {
			return 1, nil
		}
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is not a whole number from 0 on", inspect.Printable(text))
	}
	return n, nil
}

// clusterPolicy changes the policy, unless set is nil, and prints it.
func clusterPolicy(ctx context.Context, s *shell.Session, set *pb.Policy) error {
	resp, err := s.Admin.ClusterPolicy(ctx, &pb.ClusterPolicyRequest{Set: set})
	if err != nil {
		return err
	}
	p := resp.GetPolicy()
	if s.Out.JSON() {
		return s.Out.Object(p)
	}
	var g shell.Grid
	g.Add("SETTING", "VALUE", "MEANING")
	for _, s := range policy.Settings() {
		if v, ok := s.Get(p); ok {
			g.Add(s.Name, s.Text(v), s.About)
		}
	}
	if err := s.Out.Table(&g); err != nil {
		return err
	}
	if err := s.Out.Print("version %d", p.GetVersion()); err != nil {
		return err
	}
	for _, h := range resp.GetHolds() {
		err := s.Out.Print("history is held from %s UTC on for the increment upon backup %s",
			inspect.Clock(mvcc.Timestamp(h.At)), inspect.Printable(h.Backup))
		if err != nil {
			return err
		}
	}
	agreed := wire.Agreed(p.GetAgreed())
	if agreed.Minimum > agreed.Active {
		return s.Out.Print("the cluster is at version %d, and about to be at %d: run %s again",
			agreed.Active, agreed.Minimum, s.Out.Suggest("cluster finalize", ""))
	}
	return s.Out.Print("the cluster is at version %d", agreed.Active)
}
