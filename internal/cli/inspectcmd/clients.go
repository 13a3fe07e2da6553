package inspectcmd

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
)

// clientOut is an identity with all its connections.
type clientOut struct {
	Identity    string   `json:"identity"` // the name in its certificates; without any, its host
	By          string   `json:"by"`
	Roles       []string `json:"roles"`
	Nodes       []uint64 `json:"nodes"`
	Connections int      `json:"connections"`
	Rate        uint64   `json:"cells_per_second"`
	Operations  uint64   `json:"operations"`
	Cells       uint64   `json:"cells"`
	Refused     uint64   `json:"refused"`
}

// ClientList lists the clients; the answering node asks all others.
func ClientList(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the clients of all nodes, the busiest first",
		Long: `List the clients of all nodes by their identities, the busiest first. An identity is the
name in a certificate; in plain text, and before its first call, a client has that of its host.
CELLS/S is what they have read and written within the last seconds, the other figures are since
they connected. REFUSED operations were over client-rate or client-table-rate (see cluster set).

With --connections, print a line for each connection.`,
		Example: "client ls\nclient ls --connections",
	}
	each := cmd.Flags().Bool("connections", false, "list each connection")
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, _ []string) error {
		resp, err := s.Admin.Clients(ctx, &pb.ClientsRequest{})
		if err != nil {
			return err
		}
		if *each {
			err = listConnections(s, resp.GetClients())
		} else {
			err = listClients(s.Out, identities(resp.GetClients()))
		}
		if err == nil {
			s.NoteUnavailable(resp.GetUnavailable())
		}
		return err
	})
}

// identities sums the connections by identity, ordered by load, highest first.
func identities(all []*pb.ClientConnection) (out []*clientOut) {
	by := map[string]*clientOut{}
	for _, c := range all {
		name := identityOf(c)
		x := by[name]
		if x == nil {
			x = &clientOut{Identity: name, By: c.By, Roles: []string{}}
			by[name] = x
			out = append(out, x)
		}
		x.By = cmp.Or(x.By, c.By)
		if c.Role != "" && !slices.Contains(x.Roles, c.Role) {
			x.Roles = append(x.Roles, c.Role)
		}
		if !slices.Contains(x.Nodes, c.NodeId) {
			x.Nodes = append(x.Nodes, c.NodeId)
		}
		x.Connections++
		x.Rate, x.Operations = x.Rate+c.Rate, x.Operations+c.Operations
		x.Cells, x.Refused = x.Cells+c.Cells, x.Refused+c.Refused
	}
	slices.SortStableFunc(out, func(a, b *clientOut) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Identity, b.Identity))
	})
	return out
}

// identityOf returns whose connection it is.
func identityOf(c *pb.ClientConnection) string {
	if c.Name != "" {
		return c.Name
	}
	if host, _, err := net.SplitHostPort(c.From); err == nil {
		return host
	}
	return c.From
}

func listClients(out *shell.Printer, clients []*clientOut) error {
	list := out.Listing("CLIENT, BY, ROLE, NODES, CONNECTIONS, CELLS/S, OPERATIONS, REFUSED", 4, 5, 6, 7)
	for _, c := range clients {
		nodes := make([]string, len(c.Nodes))
		for i, n := range c.Nodes {
			nodes[i] = strconv.FormatUint(n, 10)
		}
		list.Add(c, inspect.Printable(c.Identity), inspect.Printable(cmp.Or(c.By, "-")),
			inspect.Printable(cmp.Or(strings.Join(c.Roles, ","), "-")), strings.Join(nodes, ","),
			c.Connections, c.Rate, c.Operations, c.Refused)
	}
	return list.End()
}

func listConnections(s *shell.Session, all []*pb.ClientConnection) error {
	list := s.Out.Listing("CONNECTION, CLIENT, ROLE, FROM, SINCE, CELLS/S, OPERATIONS, REFUSED", 4, 5, 6, 7)
	for _, c := range all {
		list.Add(c, fmt.Sprintf("%d/%d", c.NodeId, c.Id), inspect.Printable(identityOf(c)),
			inspect.Printable(cmp.Or(c.Role, "-")), inspect.Printable(c.From),
			inspect.Span(max(0, time.Since(time.UnixMilli(c.ConnectedUnixMs)))), c.Rate, c.Operations, c.Refused)
	}
	return list.End()
}
