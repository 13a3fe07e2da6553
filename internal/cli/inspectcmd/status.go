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
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// `status` describes the node that answers, from what that node knows.

// StatusCommand returns the command that describes the node at --addr.
func StatusCommand(d *shell.Deps) *cobra.Command {
	return d.ClientCommand(&cobra.Command{
		Use:     "status",
		Short:   "Describe the node that answers",
		Example: "status\nstatus --addr 127.0.0.1:7800 -o json",
	}, func(ctx context.Context, s *shell.Session, _ []string) error {
		status, err := s.Transport.NodeStatus(ctx)
		if err != nil {
			return err
		}
		if d.Out.JSON() {
			return d.Out.Object(status) // as /api/v1/status shows it
		}
		// Meta may have no leader. The node's own state is shown all the same.
		asking, cancel := context.WithTimeout(ctx, shell.NodesPatience)
		defer cancel()
		nodes, err := s.Admin.Nodes(asking, &pb.NodesRequest{})
		if err != nil {
			nodes = nil
		}
		defer shell.NoteStale(d.Out, nodes) // after the table
		return d.Out.Table(statusTable(status, nodes.GetNodes(), time.Now()))
	})
}

// versionText describes the build, the versions that it supports, and the cluster's version.
func versionText(s *pb.NodeStatusResponse) string {
	if s.Agreed == nil {
		return s.Version
	}
	return fmt.Sprintf("%s, for clusters at version %s; this one is at %d", s.Version,
		wire.Versions(s.Versions), s.Agreed.Active)
}

// statusTable sums up tablets and observers; `tablet ls` and `observer ls` have them one by one.
func statusTable(s *pb.NodeStatusResponse, nodes []*pb.Node, now time.Time) *shell.Grid {
	var reads, mutations, batches uint64
	for _, t := range s.Tablets {
		reads, mutations, batches = reads+t.Reads, mutations+t.Mutations, batches+t.Batches
	}
	var running uint32
	var runs, parked uint64
	for _, o := range s.Observers {
		running += o.Running
		runs, parked = runs+o.Runs, parked+o.Parked
	}
	g := &shell.Grid{}
	g.Add("cluster", s.ClusterId)
	g.Addf("node", "%d, incarnation %d", s.NodeId, s.Incarnation)
	if len(nodes) > 0 {
		g.Add("members", members(nodes))
	}
	g.Add("version", versionText(s))
	addresses := s.Addresses
	if len(addresses) == 0 {
		addresses = []string{s.Listen}
	}
	g.Add("clients", strings.Join(addresses, ", "))
	if s.Http != "" {
		g.Add("http", "http://"+s.Http+"/")
	}
	if s.StartedUnixMs > 0 {
		g.Add("up", inspect.Span(now.Sub(time.UnixMilli(s.StartedUnixMs))))
	}
	if s.Meta != nil {
		g.Add("meta", metaText(s.Meta))
	}
	g.Add("tablets", tabletsText(s.Tablets))
	for _, c := range s.Certificates {
		g.Add("certificate", certificateText(c))
	}
	g.Addf("operations", "%d reads, %d mutations%s", reads, mutations,
		perBatch(reads+mutations, batches))
	g.Addf("log", "%d synced batches%s", s.LogBatches,
		perBatch(s.LogRequests, s.LogBatches))
	if s.Log != nil {
		g.Add("log files", logFiles(s.Log))
	}
	if s.OracleLast > 0 {
		g.Addf("oracle", "at %d (%s UTC), %d timestamps%s", s.OracleLast,
			inspect.Clock(mvcc.Timestamp(s.OracleLast)), s.OracleServed,
			perBatch(s.OracleServed, s.OracleBatches))
	}
	g.Add("history", keptHistory(s))
	if s.DiskFree+s.DiskUsed > 0 {
		g.Addf("disk", "%s used, %s free", shell.ByteText(int64(s.DiskUsed)),
			shell.ByteText(int64(s.DiskFree)))
	}
	if s.Failed != "" {
		g.Add("failed", s.Failed)
	}
	if s.WriteBlocked != "" {
		g.Add("writes", "refused: "+s.WriteBlocked)
	}
	for _, differs := range s.PolicyDiffers {
		g.Add("settings", differs)
	}
	g.Addf("observers", "%d linked, %d running, %d runs, %d parked", len(s.Observers),
		running, runs, parked)
	if s.Registering != "" {
		g.Add("registering", s.Registering)
	}
	return g
}

// logFiles returns the size of the Raft log, and its directory, if separate.
func logFiles(l *pb.LogStatus) string {
	text := fmt.Sprintf("%s in %d segments, %s to be applied again after a crash",
		shell.ByteText(int64(l.Bytes)), l.Segments, shell.ByteText(int64(l.Unchecked)))
	if l.Dir != "" {
		text += fmt.Sprintf("; in %s, %s free there", l.Dir, shell.ByteText(int64(l.DiskFree)))
	}
	return text
}

// metaText reports whether meta answers the node.
func metaText(m *pb.MetaSight) string {
	text, ago := "answers", time.Duration(m.AnsweredAgoMs)*time.Millisecond
	switch {
	case m.Error != "" && m.AnsweredAgoMs < 0:
		text = "DOES NOT ANSWER, and never has: " + m.Error
	case m.Error != "":
		text = fmt.Sprintf("DOES NOT ANSWER, the last time was %s ago: %s", inspect.Span(ago), m.Error)
	case m.AnsweredAgoMs >= 0:
		text += ", " + inspect.Span(ago) + " ago"
	}
	if m.LeaderNode != 0 {
		return text + fmt.Sprintf("; node %d leads it", m.LeaderNode)
	}
	return text + "; no leader is known"
}

// certificateText returns the end of a certificate's validity, or its problem.
func certificateText(c *pb.CertificateStatus) string {
	if c.Problem != "" {
		return c.Problem
	}
	return fmt.Sprintf("%s is valid until %s", c.File,
		time.UnixMilli(c.ExpiresUnixMs).UTC().Format(time.DateOnly))
}

// tabletsText counts the replicas here, and those without a leader.
func tabletsText(tablets []*pb.StatusResponse) string {
	leaders, leaderless, longest, locks := 0, 0, int64(0), uint64(0)
	for _, t := range tablets {
		if t.Leader {
			leaders++
		}
		if t.LeaderlessMs > 0 {
			leaderless++
			longest = max(longest, t.LeaderlessMs)
		}
		locks += t.Locks
	}
	text := fmt.Sprintf("%d, leader of %d, %d locks", len(tablets), leaders, locks)
	if leaderless > 0 {
		text += fmt.Sprintf("; %d WITHOUT A LEADER, the first for %s", leaderless,
			inspect.Span(time.Duration(longest)*time.Millisecond))
	}
	return text
}

// keptHistory describes the readable history and what blocks its collection.
func keptHistory(s *pb.NodeStatusResponse) string {
	h := s.GetHistory()
	text := "all is kept"
	if h.GetBound() > 0 {
		text = fmt.Sprintf("readable from %d (%s UTC) on, %d entries collected", h.Bound,
			inspect.Clock(mvcc.Timestamp(h.Bound)), h.Collected)
	}
	if h.GetHolds() > 0 {
		text += fmt.Sprintf(", %d held back by readers", h.Holds)
	}
	if h.GetBlockedBy() != "" {
		text += "; blocked: " + h.BlockedBy
	}
	return text
}

// perBatch returns the average size of a batch.
func perBatch(entries, batches uint64) string {
	if batches == 0 {
		return ""
	}
	return fmt.Sprintf(", %.1f a batch", float64(entries)/float64(batches))
}

// members sums up the nodes.
func members(nodes []*pb.Node) string {
	alive, leader := 0, "unknown"
	for _, n := range nodes {
		if n.Alive {
			alive++
		}
		if n.LeadsMeta {
			leader = fmt.Sprintf("node %d", n.NodeId)
		}
	}
	return fmt.Sprintf("%d nodes, %d alive; meta's leader: %s", len(nodes), alive, leader)
}
