package shell

import (
	"context"
	"errors"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// Session, a connection to a node, and the requests that several commands share: tables and their
// ids, and the tablet map.

// Session is a command's connection to a running node, and the printer for its answer. Ages and expiries
// are computed from Client.Timestamp, the oracle's time, never from this machine's clock.
type Session struct {
	Out       *Printer
	Conn      *Connector
	Transport txn.Transport
	Client    *txn.Client
	Admin     pb.AdminClient
	DB        *percolator.DB
}

// ErrInvalidAnswer reports that a tablet's answer does not fit the request.
var ErrInvalidAnswer = errors.New("invalid answer from the node")

// Names reads the names of tables from meta.
func (s *Session) Names(ctx context.Context) (*inspect.Names, error) {
	return inspect.ReadNames(ctx, s.Transport)
}

// Schema returns the tables' names and the catalogue of observers.
func (s *Session) Schema(ctx context.Context) (*inspect.Names, *pb.Catalogue, error) {
	names, err := s.Names(ctx)
	if err != nil {
		return nil, nil, err
	}
	catalogue, err := s.Transport.Catalogue(ctx)
	return names, catalogue, err
}

// NamesIfKnown returns the tables' names, or nil if meta does not answer within NodesPatience. Then
// tables are shown by number.
func (s *Session) NamesIfKnown(ctx context.Context) (*inspect.Names, error) {
	asking, cancel := context.WithTimeout(ctx, NodesPatience)
	defer cancel()
	n, err := s.Names(asking)
	switch {
	case err == nil:
		return n, nil
	case ctx.Err() != nil:
		return nil, err
	case asking.Err() != nil, errors.Is(err, percolator.ErrUnavailable),
		inspect.RefusedWith(err, pb.Error_CODE_UNAVAILABLE):
		s.Out.Note("tables are shown by their numbers, since meta does not answer: %v", err)
		return nil, nil
	}
	return nil, err
}

// Identify returns the ids of the cluster and the table, because a name may later denote another
// table.
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

// locatePage is the number of descriptors per message.
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

// NodesPatience limits the wait for an answer that a command can do without, such as the list of
// nodes, which the node reads from meta.
const NodesPatience = 3 * time.Second

// NoteUnavailable prints the nodes that are missing in an answer.
func (s *Session) NoteUnavailable(nodes []string) {
	for _, why := range nodes {
		s.Out.Note("no answer from %s", inspect.Printable(why))
	}
}
