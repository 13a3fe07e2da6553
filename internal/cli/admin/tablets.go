package admin

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
)

// The commands for tablets ask the answering node, which reads the tablet map from meta.

// TabletCommand groups the commands for tablets.
func TabletCommand(d *shell.Deps) *cobra.Command {
	return shell.Group("tablet", "List, split, merge and move tablets",
		"tablet ls\ntablet split bank m",
		tabletList(d), tabletDescribe(d), tabletSplit(d), tabletMerge(d), tabletMove(d))
}

// tabletSplit splits at a row. It succeeds if a tablet already begins there.
func tabletSplit(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "split TABLE ROW",
		Short:   "Split the tablet that holds the row, just before it",
		Example: "tablet split bank m",
	}
	shell.AddInputArgs(cmd)
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, args []string) error {
		err := s.DB.Admin().SplitTablet(ctx, args[0], args[1])
		return d.Out.Done(err, "a tablet of %s begins at %s", args[0], inspect.Printable(args[1]))
	})
}

// tabletMerge merges two adjacent tablets. It succeeds if no tablet begins at the row.
func tabletMerge(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "merge TABLE ROW",
		Short: "Merge the tablet that begins at the row with the one before it",
		Long: `Merge the tablet that begins at the row with the one before it. Their replicas are first moved to
the same nodes, which takes as long as a tablet move. Then both are unavailable for about a second.
The cluster itself merges small tablets of one table, except at requested splits, and
tablets of dropped tables.`,
		Example: "tablet merge bank m --timeout 60s",
	}
	shell.AddInputArgs(cmd)
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, args []string) error {
		t, err := s.DB.Admin().MergeTablets(ctx, args[0], args[1])
		return d.Out.Done(err, "tablet %d of %s holds %s", t.ID, args[0], inspect.Printable(args[1]))
	})
}

// tabletList lists the tablet map of meta with the reports of replicas.
func tabletList(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the tablets with their replicas, leaders and load",
		Long: `List the tablets in range order, or with --sort load the busiest first. LEADER is the id of the
node that reports to lead the tablet; none if no answering node does: the tablet has no quorum, or is
electing a leader. LOCKS and the columns after it are reported by the leader, or without its answer
by the replica of the answering node; a dash means unknown. With -o json each replica reports its
own values.`,
		Example: "tablet ls\ntablet ls --sort load\ntablet ls -o json",
	}
	order := cmd.Flags().String("sort", "range", "order: range, or load: the busiest first")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if *order != "range" && *order != "load" {
			return shell.Usagef(cmd, "--sort %s: use range or load", inspect.Printable(*order))
		}
		return nil
	}
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, _ []string) error {
		return listTablets(ctx, s, *order == "load")
	})
}

// tabletJSON is a tablet in JSON. Its field Here has the report of the answering node's replica, or
// nil if that node has no replica of the tablet.
type tabletJSON struct {
	ID    uint64 `json:"id"`
	Epoch uint64 `json:"epoch"`
	shell.RangeOut
	Nodes []uint64 `json:"nodes"`
	// the node that reports to lead it; omitted if none does
	Leader uint64      `json:"leader,omitempty"`
	Here   *tabletHere `json:"here,omitempty"`
	// one for each replica whose node answered
	Replicas []tabletReplica `json:"replicas,omitempty"`

	leads *tabletHere // the leader's report; nil: no answer
}

// tabletReplica is the report of one replica.
type tabletReplica struct {
	Node uint64 `json:"node"`
	tabletHere
}

// best returns the leader's report, else the one of the answering node's replica, or nil.
func (t *tabletJSON) best() *tabletHere {
	if t.leads != nil {
		return t.leads
	}
	return t.Here
}

type tabletHere struct {
	Leader    bool   `json:"leader"`
	Applied   uint64 `json:"applied_index"`
	Locks     uint64 `json:"locks"`
	Reads     uint64 `json:"reads"`
	Mutations uint64 `json:"mutations"`
	Batches   uint64 `json:"batches"`
	Proposals uint64 `json:"proposals"`
	Size      uint64 `json:"size_bytes"`
	Load      uint64 `json:"load"` // operations per second, in the last window of at least 2 s
	Bound     uint64 `json:"bound"`
	Safepoint uint64 `json:"safepoint"`
	Garbage   uint64 `json:"garbage"` // approximate number of collectable entries
	Collected uint64 `json:"collected"`
}

// listTablets joins the map with the reports of replicas by tablet id.
func listTablets(ctx context.Context, s *shell.Session, byLoad bool) error {
	names, err := s.NamesIfKnown(ctx)
	if err != nil {
		return err
	}
	descriptors, err := s.Tablets(ctx)
	if err != nil {
		return err
	}
	status, err := s.Transport.NodeStatus(ctx)
	if err != nil {
		return err
	}
	nodes, err := s.Admin.Nodes(ctx, &pb.NodesRequest{Leaders: true})
	if err != nil {
		return err
	}
	here, leaders := map[uint64]*pb.StatusResponse{}, map[uint64]uint64{}
	for _, t := range status.GetTablets() {
		here[t.GetTablet().GetTabletId()] = t
	}
	for _, l := range nodes.GetLeaders() {
		leaders[l.TabletId] = l.NodeId
	}
	whole, err := s.Admin.ClusterStatus(ctx, &pb.ClusterStatusRequest{})
	if err != nil {
		s.Out.Note("other nodes' replicas are missing: %v", err)
	}
	var all []*tabletJSON
	for _, d := range descriptors {
		t := newTabletJSON(d, names, leaders[d.TabletId], here[d.TabletId])
		t.addReplicas(whole)
		all = append(all, t)
	}
	if byLoad {
		slices.SortStableFunc(all, busiest)
	}
	list := s.Out.Listing("TABLET, FROM, BEFORE, EPOCH, NODES, LEADER, LOCKS, READS, MUTATIONS, "+
		"BATCHES, PROPOSALS, SIZE, OPS/S", 0, 3, 6, 7, 8, 9, 10, 11, 12)
	for _, t := range all {
		list.Add(t, t.line()...)
	}
	return list.End()
}

// busiest orders tablets by operations per second, descending; those without figures come last.
func busiest(a, b *tabletJSON) int {
	load := func(t *tabletJSON) int64 {
		if h := t.best(); h != nil {
			return int64(h.Load)
		}
		return -1
	}
	return cmp.Compare(load(b), load(a))
}

// addReplicas adds the reports of the tablet's replicas from the cluster's status.
func (t *tabletJSON) addReplicas(whole *pb.ClusterStatusResponse) {
	for _, n := range whole.GetNodes() {
		for _, one := range n.GetStatus().GetTablets() {
			if one.GetTablet().GetTabletId() != t.ID {
				continue
			}
			r := tabletReplica{n.GetNode().GetNodeId(), *newTabletHere(one)}
			t.Replicas = append(t.Replicas, r)
			if r.Leader {
				t.leads = &r.tabletHere
			}
		}
	}
}

// newTabletJSON converts a descriptor. The parameter here is the status of the answering node's
// replica, or nil if that node has none.
func newTabletJSON(d *pb.TabletDescriptor, names *inspect.Names, leader uint64,
	here *pb.StatusResponse) *tabletJSON {
	t := &tabletJSON{
		ID: d.TabletId, Epoch: d.Epoch, RangeOut: shell.NewRangeOut(d, names), Nodes: []uint64{},
		Leader: leader,
	}
	for _, replica := range d.Replicas {
		t.Nodes = append(t.Nodes, replica.NodeId)
	}
	if here != nil {
		t.Here = newTabletHere(here)
	}
	return t
}

// newTabletHere converts a replica's status.
func newTabletHere(s *pb.StatusResponse) *tabletHere {
	return &tabletHere{
		Leader: s.Leader, Applied: s.AppliedIndex, Locks: s.Locks, Reads: s.Reads,
		Mutations: s.Mutations, Batches: s.Batches, Proposals: s.Proposals,
		Size: s.SizeBytes, Load: s.Load, Bound: s.Bound, Safepoint: s.Safepoint,
		Garbage: s.Garbage, Collected: s.Collected,
	}
}

// line returns the tablet's line in the table.
func (t *tabletJSON) line() []any {
	var nodes []string
	for _, n := range t.Nodes {
		nodes = append(nodes, strconv.FormatUint(n, 10))
	}
	leader := any("none")
	if t.Leader != 0 {
		leader = t.Leader
	}
	from, before := t.Text()
	line := []any{
		t.ID, from, before, t.Epoch, strings.Join(nodes, ","), leader,
	}
	h := t.best()
	if h == nil {
		return append(line, "-", "-", "-", "-", "-", "-", "-")
	}
	return append(line, h.Locks, h.Reads, h.Mutations,
		h.Batches, h.Proposals, shell.ByteText(int64(h.Size)), h.Load)
}

// tabletMove records the request of one move; placement performs it.
func tabletMove(d *shell.Deps) *cobra.Command {
	var from, to string
	var tablet uint64
	var leader bool
	cmd := &cobra.Command{
		Use:   "move TABLET {--from NODE | --leader} --to NODE",
		Short: "Move one replica of a tablet to another node, or its leadership",
		Long: `Move one replica of a tablet from one node to another; or, with --leader, have
the replica on a node lead. TABLET is the number of a tablet in tablet ls. Nodes are named by their ids or by
the addresses that clients reach them at.

It returns when the move is recorded. The move continues after a change of leader or a restart;
tablet ls shows its progress. A move that is no longer possible, because a node is dead or
drained, ends. The cluster balances replicas and leaders automatically: after ten minutes it may
undo a move that unbalances them.

It is refused if there is no such node or tablet, if the replica is not there, if the other node
has one already, or if two replicas would come into one zone that need not.`,
		Example: "tablet move 7 --from 127.0.0.1:7800 --to 127.0.0.1:7810\n" +
			"tablet move 7 --leader --to 127.0.0.1:7810",
		PreRunE: func(cmd *cobra.Command, args []string) (err error) {
			tablet, err = strconv.ParseUint(args[0], 10, 64)
			switch {
			case err != nil:
				return shell.Usagef(cmd, "TABLET must be the number of a tablet in `tablet ls`, not %s", inspect.Printable(args[0]))
			case to == "":
				return shell.Usagef(cmd, "--to is missing: the target node")
			case leader == (from != ""):
				return shell.Usagef(cmd, "give one of --from NODE, for a replica, and --leader")
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&from, "from", "", "the node whose replica moves")
	flags.StringVar(&to, "to", "", "the node that receives the replica or the leadership")
	flags.BoolVar(&leader, "leader", false, "move the leadership only")
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, _ []string) error {
		target, err := s.NodeID(ctx, to)
		if err != nil {
			return err
		}
		if leader {
			err := s.DB.Admin().MoveLeader(ctx, tablet, target)
			return d.Out.Done(err, "node %d is to lead tablet %d", target, tablet)
		}
		source, err := s.NodeID(ctx, from)
		if err != nil {
			return err
		}
		err = s.DB.Admin().MoveReplica(ctx, tablet, source, target)
		return d.Out.Done(err, "the replica of tablet %d on node %d is to move to node %d", tablet, source,
			target)
	})
}

// replicaOut is a replica's report in JSON.
type replicaOut struct {
	Node    uint64 `json:"node"`
	Role    string `json:"role"`
	Term    uint64 `json:"term"`
	Applied uint64 `json:"applied_index"`
	Last    uint64 `json:"last_index"`
	Leader  uint64 `json:"leader,omitempty"` // the leader known to the replica
	AtRest  bool   `json:"at_rest"`
	Locks   uint64 `json:"locks"`
	Size    uint64 `json:"size_bytes"`
	Problem string `json:"error,omitempty"` // why there is no report
}

// tabletDescribe prints the report of every replica of one tablet.
func tabletDescribe(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe TABLET",
		Short: "Show the state of each replica of a tablet",
		Long: `Show the state of every replica of a tablet (its number in tablet ls): its role, its term,
its last applied entry and its last entry, the leader that it knows, and whether it is
quiescent. A replica that does not answer is shown with the reason.`,
		Example: "tablet describe 7\ntablet describe 7 -o json",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := strconv.ParseUint(args[0], 10, 64)
		if err != nil {
			return shell.Usagef(cmd, "TABLET must be the number of a tablet in `tablet ls`, not %s", inspect.Printable(args[0]))
		}
		return d.Conn.Run(cmd, func(ctx context.Context, s *shell.Session) error {
			answer, err := s.Admin.DescribeTablet(ctx, &pb.DescribeTabletRequest{TabletId: id})
			if err != nil {
				return err
			}
			return listReplicas(answer, d.Out)
		})
	}
	return d.WithClient(cmd)
}

func listReplicas(answer *pb.DescribeTabletResponse, out *shell.Printer) error {
	list := out.Listing("NODE, ROLE, TERM, APPLIED, LAST, LEADER, AT REST, LOCKS, SIZE",
		0, 2, 3, 4, 5, 7, 8)
	for i, r := range answer.GetReplicas() {
		role, st := "voter", r.GetStatus()
		switch {
		case st.GetLeader():
			role = "leader"
		case answer.GetTablet().GetReplicas()[i].GetLearner():
			role = "learner"
		}
		x := &replicaOut{
			Node: r.GetNodeId(), Role: role, Term: st.GetTerm(), Applied: st.GetAppliedIndex(),
			Last:   st.GetLastIndex(),
			Leader: st.GetLeaderNode(), AtRest: st.GetQuiescent(), Locks: st.GetLocks(),
			Size: st.GetSizeBytes(), Problem: r.GetError(),
		}
		if st == nil {
			list.Add(x, x.Node, role, "-", "-", "-", "-", x.Problem, "-", "-")
			continue
		}
		list.Add(x, x.Node, role, x.Term, x.Applied,
			x.Last, x.Leader,
			x.AtRest, x.Locks, shell.ByteText(int64(x.Size)))
	}
	return list.End()
}
