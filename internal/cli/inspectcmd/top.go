package inspectcmd

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/txn"
)

// The command top shows again and again what the cluster does: nodes, the busiest tablets,
// observers and clients. Each sample is what ClusterStatus and Clients answer.

// topOut is one sample in JSON.
type topOut struct {
	Nodes     []topNode     `json:"nodes"`
	Tablets   []topTablet   `json:"tablets"`
	Observers []topObserver `json:"observers"`
	Clients   []*clientOut  `json:"clients"`
	Missing   []string      `json:"missing,omitempty"` // what could not be read, and why
}

type topNode struct {
	Node     uint64 `json:"node"`
	Listen   string `json:"listen"`
	Alive    bool   `json:"alive"`
	Replicas uint32 `json:"replicas"`
	Leaders  uint32 `json:"leaders"`
	Load     uint64 `json:"load"` // operations a second of the tablets that it leads
	DiskFree uint64 `json:"disk_free"`
}

type topTablet struct {
	Tablet uint64            `json:"tablet"`
	Start  shell.PositionOut `json:"start"`
	Leader uint64            `json:"leader"`
	Load   uint64            `json:"load"` // operations a second, in the last 2 s or more
	Size   uint64            `json:"size_bytes"`
	Locks  uint64            `json:"locks"`
}

type topObserver struct {
	Observer string `json:"observer"`
	Waiting  uint64 `json:"waiting"`
	Running  uint64 `json:"running"`
	Runs     uint64 `json:"runs"`
	Parked   uint64 `json:"parked"`
}

// clearScreen moves a terminal's cursor to the upper left and clears the screen.
const clearScreen = "\x1b[H\x1b[2J"

// TopCommand returns the command that shows the busiest nodes, tablets, observers and clients.
func TopCommand(d *shell.Deps) *cobra.Command {
	interval, rows, once := 2*time.Second, 10, false
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show nodes, busiest tablets, observers and clients, refreshed periodically",
		Long: `Show nodes and the busiest tablets, observers and clients, refreshed every --interval until
interrupted. Without a terminal, with --once and with -o json it prints one sample and
exits. Only operators see clients.`,
		Example: "top\ntop --interval 5s\ntop -o json",
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if interval < time.Second || rows < 1 {
				return shell.Usagef(cmd, "--interval must be at least 1s, and --rows at least 1")
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&interval, "interval", interval, "time between two samples, at least 1s")
	cmd.Flags().IntVar(&rows, "rows", rows, "maximum number of tablets, of observers and of clients")
	cmd.Flags().BoolVar(&once, "once", false, "print one sample and exit")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if d.Out.JSON() || !d.Out.AtTerminal(d.Out.Raw) {
			once = true
		}
		return d.Conn.RunLong(cmd, func(ctx context.Context, s *shell.Session) error {
			for {
				sample, err := sampleLoad(ctx, s, rows)
				if err != nil {
					return err
				}
				if d.Out.JSON() {
					return d.Out.Object(sample)
				}
				if !once {
					_, _ = io.WriteString(d.Out.Raw, clearScreen)
				}
				if err := sample.print(d.Out); err != nil || once {
					return err
				}
				if err := txn.Sleep(ctx, interval); err != nil {
					return err
				}
			}
		})
	}
	return d.WithClient(cmd)
}

// sampleLoad queries the cluster's load, within --timeout. rows limits the tablets, the observers
// and the clients.
func sampleLoad(ctx context.Context, s *shell.Session, rows int) (*topOut, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Conn.Timeout)
	defer cancel()
	whole, err := s.Admin.ClusterStatus(ctx, &pb.ClusterStatusRequest{})
	if err != nil {
		return nil, err
	}
	out := &topOut{Clients: []*clientOut{}}
	names, err := s.Names(ctx)
	if err != nil {
		names = nil
		out.Missing = append(out.Missing, "names of tables: "+err.Error())
	}
	out.cluster(whole, names)
	clients, err := s.Admin.Clients(ctx, &pb.ClientsRequest{})
	if err != nil {
		out.Missing = append(out.Missing, "clients: "+err.Error())
	}
	out.Clients = append(out.Clients, identities(clients.GetClients())...)
	out.Missing = append(out.Missing, clients.GetUnavailable()...)
	out.Tablets = out.Tablets[:min(rows, len(out.Tablets))]
	out.Observers = out.Observers[:min(rows, len(out.Observers))]
	out.Clients = out.Clients[:min(rows, len(out.Clients))]
	return out, nil
}

// cluster takes nodes, tablets and observers from the cluster's status.
func (t *topOut) cluster(whole *pb.ClusterStatusResponse, names *inspect.Names) {
	t.Nodes, t.Tablets, t.Observers = []topNode{}, []topTablet{}, []topObserver{}
	for _, n := range whole.GetNodes() {
		node := topNode{
			Node: n.GetNode().GetNodeId(), Listen: n.GetNode().GetListen(), Alive: n.GetNode().GetAlive(),
			DiskFree: n.GetStatus().GetDiskFree(),
		}
		for _, r := range n.GetStatus().GetTablets() {
			node.Replicas++
			if !r.Leader {
				continue
			}
			node.Leaders++
			node.Load += r.Load
			t.Tablets = append(t.Tablets, topTablet{
				Tablet: r.GetTablet().GetTabletId(), Start: shell.NewRangeOut(r.GetTablet(), names).Start,
				Leader: node.Node, Load: r.Load, Size: r.SizeBytes, Locks: r.Locks,
			})
		}
		t.Nodes = append(t.Nodes, node)
	}
	slices.SortFunc(t.Tablets, func(a, b topTablet) int {
		return cmp.Or(cmp.Compare(b.Load, a.Load), cmp.Compare(a.Tablet, b.Tablet))
	})
	for _, o := range whole.GetObservers() {
		t.Observers = append(t.Observers, topObserver{
			Observer: o.GetInfo().GetName(), Waiting: o.GetNotifications() + o.GetIntents(),
			Running: uint64(o.GetStatus().GetRunning()), Runs: o.GetStatus().GetRuns(), Parked: o.GetParked(),
		})
	}
	slices.SortFunc(t.Observers, func(a, b topObserver) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), strings.Compare(a.Observer, b.Observer))
	})
}

// print writes a table for each part.
func (t *topOut) print(out *shell.Printer) error {
	nodes := out.Listing("NODE, ADDRESS, HERE, REPLICAS, LEADERS, OPS/S, FREE", 0, 3, 4, 5, 6)
	for _, n := range t.Nodes {
		here := "away"
		if n.Alive {
			here = "alive"
		}
		nodes.Add(n, n.Node, inspect.Printable(n.Listen), here, n.Replicas, n.Leaders, n.Load, shell.ByteText(int64(n.DiskFree)))
	}
	tablets := out.Listing("TABLET, FROM, LEADER, OPS/S, SIZE, LOCKS", 0, 2, 3, 4, 5)
	for _, x := range t.Tablets {
		tablets.Add(x, x.Tablet, x.Start.Text(), x.Leader, x.Load, shell.ByteText(int64(x.Size)), x.Locks)
	}
	observers := out.Listing("OBSERVER, WAITING, RUNNING, RUNS, PARKED", 1, 2, 3, 4)
	for _, o := range t.Observers {
		observers.Add(o, inspect.Printable(o.Observer), o.Waiting, o.Running, o.Runs, o.Parked)
	}
	for _, part := range []*shell.Listing{nodes, tablets, observers} {
		if err := part.End(); err != nil {
			return err
		}
		if err := out.Print(""); err != nil {
			return err
		}
	}
	if err := listClients(out, t.Clients); err != nil {
		return err
	}
	for _, why := range t.Missing {
		out.Note("missing: %s", inspect.Printable(why))
	}
	return nil
}
