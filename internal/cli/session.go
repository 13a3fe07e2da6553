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
	"github.com/percolator-go/percolator/internal/wire"
)

// This file has the questions that several commands ask over their session: the tables and their ids, the tablet map, what a row holds, which
// node an address means. It keeps no state between them.

// session is a command's connection to a running node, with where its answer goes.
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

// metaName is how the meta tablet's own table is called in output.
const metaName = "(meta)"

// names translates between tables and their ids.
type names struct {
	ids   map[string]mvcc.TableID
	texts map[uint32]string
}

// names reads the tables from meta, dropped ones too: locks of theirs may still be about.
func (s *session) names(ctx context.Context) (*names, error) {
	tables, err := s.transport.Tables(ctx)
	if err != nil {
		return nil, err
	}
	n := &names{
		ids: map[string]mvcc.TableID{}, texts: map[uint32]string{uint32(mvcc.MetaTable): metaName},
	}
	for _, t := range tables {
		n.texts[t.Id] = t.Name
		if t.DroppedTs == 0 {
			n.ids[t.Name] = mvcc.TableID(t.Id)
		}
	}
	return n, nil
}

// schema is names together with the catalogue of observers.
func (s *session) schema(ctx context.Context) (*names, *pb.Catalogue, error) {
	names, err := s.names(ctx)
	if err != nil {
		return nil, nil, err
	}
	catalogue, err := s.transport.Catalogue(ctx)
	return names, catalogue, err
}

// namesIfKnown is names for what can be shown with numbers for names while meta does not
// answer; nil then.
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

// table is the id of a table by name.
func (n *names) table(name string) (mvcc.TableID, error) {
	id, ok := n.ids[name]
	if !ok {
		return 0, fmt.Errorf("%w: %s", percolator.ErrNoTable, printable(name))
	}
	return id, nil
}

// chosen is the table named in args, or all of them, meta's own not among them.
func (n *names) chosen(args []string) ([]mvcc.TableID, error) {
	if len(args) > 0 {
		id, err := n.table(args[0])
		return []mvcc.TableID{id}, err
	}
	return slices.Sorted(maps.Values(n.ids)), nil
}

// byID is the name of a table, or its number where it has none (yet, or any more).
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

// identify returns the cluster's id and the table's: a name alone may mean another table
// tomorrow.
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

// row reads what a row holds, or some cells of it, as it is stored; limit 0 is the
// tablet's own. A row may hold more than one answer: a conclusion from what is not there
// has to ask for the cell.
func (s *session) row(ctx context.Context, table mvcc.TableID, row string, limit int,
	only ...mvcc.Cell) ([]*pb.HistoryEntry, error) {
	request := &pb.HistoryRequest{
		Table: uint32(table), Row: []byte(row), Limit: uint32(max(limit, 0)),
		Cells: wire.CellsPB(only),
	}
	answer, _, err := s.client.Send(ctx, wire.Position{Table: table, Row: row},
		&pb.TabletRequest{Op: &pb.TabletRequest_History{History: request}})
	if err != nil {
		return nil, err
	}
	if answer.GetHistory() == nil {
		return nil, errNoAnswer
	}
	return answer.GetHistory().Entries, nil
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
