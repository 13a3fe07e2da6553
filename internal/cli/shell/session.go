package shell

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// This file has the session, one connection to a node, and the requests that several
// commands make over it: tables and their ids, the tablet map, the content of a row.

// Session is a command's connection to a running node, and the printer for its answer.
type Session struct {
	Out       *Printer
	Conn      *Connector
	Transport txn.Transport
	Client    *txn.Client
	Admin     pb.AdminClient
	DB        *percolator.DB
}

// ErrNoAnswer is returned when a tablet answers something other than what was asked.
var ErrNoAnswer = errors.New("invalid answer from the node")

// Now returns the oracle's time. Ages and expiries are computed from it, never from this
// machine's clock.
func (s *Session) Now(ctx context.Context) (mvcc.Timestamp, error) {
	return s.Client.Timestamp(ctx)
}

// metaName stands for the meta tablet's own table in output.
const metaName = "(meta)"

// Names translates between tables and their ids.
type Names struct {
	IDs   map[string]mvcc.TableID
	texts map[uint32]string
}

// Names reads the tables from meta, including dropped ones, whose locks may remain.
func (s *Session) Names(ctx context.Context) (*Names, error) {
	tables, err := s.Transport.Tables(ctx)
	if err != nil {
		return nil, err
	}
	n := &Names{
		IDs: map[string]mvcc.TableID{}, texts: map[uint32]string{uint32(mvcc.MetaTable): metaName},
	}
	for _, t := range tables {
		if t.Hidden { // shown by its number
			continue
		}
		n.texts[t.Id] = t.Name
		if t.DroppedTs == 0 {
			n.IDs[t.Name] = mvcc.TableID(t.Id)
		}
	}
	return n, nil
}

// Schema returns the tables' names and the catalogue of observers.
func (s *Session) Schema(ctx context.Context) (*Names, *pb.Catalogue, error) {
	names, err := s.Names(ctx)
	if err != nil {
		return nil, nil, err
	}
	catalogue, err := s.Transport.Catalogue(ctx)
	return names, catalogue, err
}

// NamesIfKnown is like names, but returns nil if meta does not answer: tables are shown
// by their numbers then.
func (s *Session) NamesIfKnown(ctx context.Context) (*Names, error) {
	asking, cancel := context.WithTimeout(ctx, NodesPatience)
	defer cancel()
	n, err := s.Names(asking)
	switch {
	case err == nil:
		return n, nil
	case ctx.Err() != nil:
		return nil, err
	case asking.Err() != nil, errors.Is(err, percolator.ErrUnavailable),
		refusedWith(err, pb.Error_CODE_UNAVAILABLE):
		s.Out.Note("tables are shown by their numbers, since meta does not answer: %v", err)
		return nil, nil
	}
	return nil, err
}

// Table returns the id of a table.
func (n *Names) Table(name string) (mvcc.TableID, error) {
	id, ok := n.IDs[name]
	if !ok {
		return 0, coded.Errorf("", "%w: %s", percolator.ErrNoTable, Printable(name))
	}
	return id, nil
}

// Chosen returns the table named in args, or all tables but meta's own.
func (n *Names) Chosen(args []string) ([]mvcc.TableID, error) {
	if len(args) > 0 {
		id, err := n.Table(args[0])
		return []mvcc.TableID{id}, err
	}
	return slices.Sorted(maps.Values(n.IDs)), nil
}

// ByID returns the name of a table, or its number if it has none.
func (n *Names) ByID(id uint32) string {
	if n != nil {
		if name, ok := n.texts[id]; ok {
			return Printable(name)
		}
	}
	return fmt.Sprintf("table %d", id)
}

// Address writes row.column of a cell, with the table in front if it is another than that
// of the cell it is seen from.
func (n *Names) Address(from, c *pb.Cell) string {
	text := Printable(string(c.GetRow())) + "." + ColumnText(c)
	if c.GetTable() != from.GetTable() {
		text = n.ByID(c.GetTable()) + "/" + text
	}
	return text
}

// Identify returns the ids of the cluster and the table. A name may denote another table
// later.
func (s *Session) Identify(ctx context.Context,
	table string) (cluster string, id uint32, err error) {
	names, err := s.Names(ctx)
	if err != nil {
		return "", 0, err
	}
	found, err := names.Table(table)
	if err != nil {
		return "", 0, err
	}
	status, err := s.Transport.NodeStatus(ctx)
	return status.GetClusterId(), uint32(found), err
}

// locatePage is how many descriptors one message fetches.
const locatePage = 256

// Tablets pages through the tablet map.
func (s *Session) Tablets(ctx context.Context) ([]*pb.TabletDescriptor, error) {
	var all []*pb.TabletDescriptor
	table, row := mvcc.MetaTable, ""
	for {
		page, err := s.Transport.Locate(ctx, table, row, locatePage)
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

// ColumnText is a column's name in tables; an acknowledgment column shows as ack_O.
func ColumnText(c *pb.Cell) string { return AckPrefix(c) + Printable(string(c.GetColumn())) }

// AckPrefix begins the names of acknowledgment columns.
func AckPrefix(c *pb.Cell) string {
	if mvcc.Class(c.GetClass()) == mvcc.ClassAck {
		return "ack_"
	}
	return ""
}

// NodesPatience limits the wait for the list of nodes, for which the node asks meta.
const NodesPatience = 3 * time.Second
