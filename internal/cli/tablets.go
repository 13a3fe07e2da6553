package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// locatePage is how many descriptors one message fetches.
const locatePage = 256

// tabletCommand holds the commands about tablets.
func (r *run) tabletCommand() *cobra.Command {
	return group("tablet", "List, split and move tablets", r.example("tablet ls", "tablet split bank m"), r.tabletList(), r.tabletSplit(),
		r.tabletMove())
}

// tabletSplit splits at a row; one at which a tablet begins already is no error.
func (r *run) tabletSplit() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "split TABLE ROW",
		Short:   "Split the tablet that holds the row, just before it",
		Example: r.example("tablet split bank m"),
		Args:    argsBetween(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			row, err := r.input.bytes(args[1])
			if err != nil {
				return err
			}
			return r.talk(cmd, func(ctx context.Context, s *session) error {
				if err := s.transport.SplitTablet(ctx, args[0], row); err != nil {
					return err
				}
				return r.done("a tablet of %s begins at %s", args[0], printable(row))
			})
		},
	}
	return r.withInput(r.withClient(cmd))
}

// tabletList shows the tablet map, which meta keeps, beside what the answering node's replicas say.
func (r *run) tabletList() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the tablets in range order, with their leaders and what the answering node's replicas say",
		Long: `List the tablets in range order. LEADER is the id of the node that says that it leads the tablet; none, if no node that
has answered does: the tablet has no quorum, or is just electing one. LOCKS and what follows is of the answering node's
replica, a dash where it has none.`,
		Example: r.example("tablet ls", "tablet ls -o json"),
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return r.talk(cmd, r.tablets)
		},
	}
	return r.withClient(cmd)
}

// tabletJSON is a tablet in JSON. Here is what the answering node's own replica says; nil
// without one.
type tabletJSON struct {
	ID     uint64       `json:"id"`
	Epoch  uint64       `json:"epoch"`
	Start  positionOut  `json:"start"`
	End    *positionOut `json:"end,omitempty"` // nil: to the end of everything
	Nodes  []uint64     `json:"nodes"`
	Leader uint64       `json:"leader,omitempty"` // the node that leads it, by its own account; left out: none has said so
	Here   *tabletHere  `json:"here,omitempty"`
}

type positionOut struct {
	Table string    `json:"table"`
	Row   jsonBytes `json:"row"`
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
	Load      uint64 `json:"load"` // operations a second, lately
	Bound     uint64 `json:"bound"`
	Safepoint uint64 `json:"safepoint"`
	Garbage   uint64 `json:"garbage"` // about how many entries wait to be collected
	Collected uint64 `json:"collected"`
}

// tablets joins the map with the node's replicas, by tablet id.
func (r *run) tablets(ctx context.Context, s *session) error {
	names, err := r.namesIfKnown(ctx, s)
	if err != nil {
		return err
	}
	descriptors, err := allTablets(ctx, s)
	if err != nil {
		return err
	}
	status, err := s.transport.NodeStatus(ctx)
	if err != nil {
		return err
	}
	here, leaders := map[uint64]*pb.StatusResponse{}, map[uint64]uint64{}
	for _, t := range status.GetTablets() {
		here[t.GetTablet().GetTabletId()] = t
	}
	nodes, err := s.admin.Nodes(ctx, &pb.NodesRequest{Leaders: true})
	if err != nil {
		return err
	}
	for _, l := range nodes.GetLeaders() {
		leaders[l.TabletId] = l.NodeId
	}
	var g grid
	g.numbers(0, 3, 6, 7, 8, 9, 10, 11, 12)
	g.add("TABLET", "FROM", "BEFORE", "EPOCH", "NODES", "LEADER", "LOCKS", "READS", "MUTATIONS", "BATCHES", "PROPOSALS", "SIZE", "OPS/S")
	for _, d := range descriptors {
		t := newTabletJSON(d, here[d.TabletId], names)
		t.Leader = leaders[d.TabletId]
		if r.output == outputJSON {
			if err := r.object(t); err != nil {
				return err
			}
			continue
		}
		g.add(t.line()...)
	}
	if r.output == outputJSON {
		return nil
	}
	return g.write(r.Stdout)
}

// newTabletJSON converts a descriptor; here is nil if the answering node has no replica.
func newTabletJSON(d *pb.TabletDescriptor, here *pb.StatusResponse, names *names) tabletJSON {
	t := tabletJSON{
		ID: d.TabletId, Epoch: d.Epoch, Nodes: []uint64{},
		Start: positionOut{names.byID(d.StartTable), jsonBytes(d.StartRow)},
	}
	if !d.EndUnbounded {
		t.End = &positionOut{names.byID(d.EndTable), jsonBytes(d.EndRow)}
	}
	for _, replica := range d.Replicas {
		t.Nodes = append(t.Nodes, replica.NodeId)
	}
	if here != nil {
		t.Here = &tabletHere{
			Leader: here.Leader, Applied: here.AppliedIndex, Locks: here.Locks, Reads: here.Reads,
			Mutations: here.Mutations, Batches: here.Batches, Proposals: here.Proposals, Size: here.SizeBytes, Load: here.Load,
			Bound: here.Bound, Safepoint: here.Safepoint, Garbage: here.Garbage, Collected: here.Collected,
		}
	}
	return t
}

// line is the tablet's line in the table.
func (t *tabletJSON) line() []string {
	end := "the end"
	if t.End != nil {
		end = t.End.text()
	}
	nodes := ""
	for i, n := range t.Nodes {
		if i > 0 {
			nodes += ","
		}
		nodes += fmt.Sprint(n)
	}
	leader := "none"
	if t.Leader != 0 {
		leader = fmt.Sprint(t.Leader)
	}
	line := []string{fmt.Sprint(t.ID), t.Start.text(), end, fmt.Sprint(t.Epoch), nodes, leader}
	if t.Here == nil {
		return append(line, "-", "-", "-", "-", "-", "-", "-") // the answering node has no replica
	}
	return append(line, fmt.Sprint(t.Here.Locks), fmt.Sprint(t.Here.Reads), fmt.Sprint(t.Here.Mutations),
		fmt.Sprint(t.Here.Batches), fmt.Sprint(t.Here.Proposals), byteText(int64(t.Here.Size)), fmt.Sprint(t.Here.Load))
}

// text writes a place in the order of all rows; a table alone is its first row.
func (p positionOut) text() string {
	if p.Row == "" {
		return p.Table
	}
	return p.Table + "/" + shortened(string(p.Row), valueWidth/2)
}

// allTablets pages through the tablet map.
func allTablets(ctx context.Context, s *session) ([]*pb.TabletDescriptor, error) {
	var all []*pb.TabletDescriptor
	table, row := mvcc.MetaTable, ""
	for {
		page, err := s.transport.Locate(ctx, table, row, locatePage)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			return all, nil
		}
		all = append(all, page...)
		last := page[len(page)-1]
		if last.EndUnbounded {
			return all, nil
		}
		table, row = mvcc.TableID(last.EndTable), string(last.EndRow)
	}
}
