package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// This file has the session, one connection to a node, and the requests that several
// commands make over it: tables and their ids, the tablet map, the content of a row.

// session is a command's connection to a running node, and the printer for its answer.
type session struct {
	out       *printer
	conn      *connector
	transport txn.Transport
	client    *txn.Client
	admin     pb.AdminClient
	db        *percolator.DB
}

// errNoAnswer is returned when a tablet answers something other than what was asked.
var errNoAnswer = errors.New("the node's answer makes no sense")

// now returns the oracle's time. Ages and expiries are computed from it, never from this
// machine's clock.
func (s *session) now(ctx context.Context) (mvcc.Timestamp, error) {
	return s.client.Timestamp(ctx)
}

// metaName stands for the meta tablet's own table in output.
const metaName = "(meta)"

// names translates between tables and their ids.
type names struct {
	ids   map[string]mvcc.TableID
	texts map[uint32]string
}

// names reads the tables from meta, including dropped ones, whose locks may remain.
func (s *session) names(ctx context.Context) (*names, error) {
	tables, err := s.transport.Tables(ctx)
	if err != nil {
		return nil, err
	}
	n := &names{
		ids: map[string]mvcc.TableID{}, texts: map[uint32]string{uint32(mvcc.MetaTable): metaName},
	}
	for _, t := range tables {
		if t.Hidden { // shown by its number
			continue
		}
		n.texts[t.Id] = t.Name
		if t.DroppedTs == 0 {
			n.ids[t.Name] = mvcc.TableID(t.Id)
		}
	}
	return n, nil
}

// schema returns the tables' names and the catalogue of observers.
func (s *session) schema(ctx context.Context) (*names, *pb.Catalogue, error) {
	names, err := s.names(ctx)
	if err != nil {
		return nil, nil, err
	}
	catalogue, err := s.transport.Catalogue(ctx)
	return names, catalogue, err
}

// namesIfKnown is like names, but returns nil if meta does not answer: tables are shown
// by their numbers then.
func (s *session) namesIfKnown(ctx context.Context) (*names, error) {
	asking, cancel := context.WithTimeout(ctx, nodesPatience)
	defer cancel()
	n, err := s.names(asking)
	switch {
	case err == nil:
		return n, nil
	case ctx.Err() != nil:
		return nil, err
	case asking.Err() != nil, errors.Is(err, percolator.ErrUnavailable),
		refusedWith(err, pb.Error_CODE_UNAVAILABLE):
		s.out.note("tables are shown by their numbers, for meta does not answer: %v", err)
		return nil, nil
	}
	return nil, err
}

// table returns the id of a table.
func (n *names) table(name string) (mvcc.TableID, error) {
	id, ok := n.ids[name]
	if !ok {
		return 0, fmt.Errorf("%w: %s", percolator.ErrNoTable, printable(name))
	}
	return id, nil
}

// chosen returns the table named in args, or all tables but meta's own.
func (n *names) chosen(args []string) ([]mvcc.TableID, error) {
	if len(args) > 0 {
		id, err := n.table(args[0])
		return []mvcc.TableID{id}, err
	}
	return slices.Sorted(maps.Values(n.ids)), nil
}

// byID returns the name of a table, or its number if it has none.
func (n *names) byID(id uint32) string {
	if n != nil {
		if name, ok := n.texts[id]; ok {
			return printable(name)
		}
	}
	return fmt.Sprintf("table %d", id)
}

// address writes row.column of a cell, with the table in front if it is another than that
// of the cell it is seen from.
func (n *names) address(from, c *pb.Cell) string {
	text := printable(string(c.GetRow())) + "." + columnText(c)
	if c.GetTable() != from.GetTable() {
		text = n.byID(c.GetTable()) + "/" + text
	}
	return text
}

// identify returns the ids of the cluster and the table. A name may denote another table
// later.
func (s *session) identify(ctx context.Context,
	table string) (cluster string, id uint32, err error) {
	names, err := s.names(ctx)
	if err != nil {
		return "", 0, err
	}
	found, err := names.table(table)
	if err != nil {
		return "", 0, err
	}
	status, err := s.transport.NodeStatus(ctx)
	return status.GetClusterId(), uint32(found), err
}

// locatePage is how many descriptors one message fetches.
const locatePage = 256

// tablets pages through the tablet map.
func (s *session) tablets(ctx context.Context) ([]*pb.TabletDescriptor, error) {
	var all []*pb.TabletDescriptor
	table, row := mvcc.MetaTable, ""
	for {
		page, err := s.transport.Locate(ctx, table, row, locatePage)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) == 0 || page[len(page)-1].EndUnbounded {
			return all, nil
		}
		last := page[len(page)-1]
		table, row = mvcc.TableID(last.EndTable), string(last.EndRow)
	}
}

// columnText is a column's name in tables; an acknowledgment column shows as ack_O.
func columnText(c *pb.Cell) string { return ackPrefix(c) + printable(string(c.GetColumn())) }

// ackPrefix begins the names of acknowledgment columns.
func ackPrefix(c *pb.Cell) string {
	if mvcc.Class(c.GetClass()) == mvcc.ClassAck {
		return "ack_"
	}
	return ""
}
