package cli

import (
	"context"
	"fmt"
	"iter"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// walkPage is how many entries one message fetches.
const walkPage = 512

// walk yields the entries of one group and table, over all its tablets in row order; N and I of one column. A split
// on the way may show entries twice, never leave any out: where a tablet ends is looked up after it was walked.
func walk(ctx context.Context, s *session, group mvcc.Group, table mvcc.TableID, column string) iter.Seq2[*pb.WalkEntry, error] {
	return walkFrom(ctx, s, group, table, column, "")
}

// walkFrom is walk that begins with a row.
func walkFrom(ctx context.Context, s *session, group mvcc.Group, table mvcc.TableID, column, first string) iter.Seq2[*pb.WalkEntry, error] {
	return func(yield func(*pb.WalkEntry, error) bool) {
		row := first
		for {
			if !walkTablet(ctx, s, group, table, column, row, yield) {
				return
			}
			tablets, err := s.transport.Locate(ctx, table, row, 1)
			if err != nil {
				yield(nil, err)
				return
			}
			if len(tablets) == 0 || tablets[0].EndUnbounded || mvcc.TableID(tablets[0].EndTable) != table {
				return
			}
			row = string(tablets[0].EndRow)
		}
	}
}

// walkTablet yields the entries of the tablet that holds row, from row on. It returns false if yield did, or on an error.
func walkTablet(ctx context.Context, s *session, group mvcc.Group, table mvcc.TableID, column, row string,
	yield func(*pb.WalkEntry, error) bool) bool {
	request := &pb.WalkRequest{
		Group: uint32(group), Table: uint32(table), FromRow: []byte(row), Column: []byte(column), Limit: walkPage,
	}
	for {
		answer, _, err := s.client.Send(ctx, wire.Position{Table: table, Row: row}, &pb.TabletRequest{Op: &pb.TabletRequest_Walk{Walk: request}})
		if err != nil {
			yield(nil, err)
			return false
		}
		page := answer.GetWalk()
		if page == nil {
			yield(nil, errNoAnswer)
			return false
		}
		for _, e := range page.Entries {
			if !yield(e, nil) {
				return false
			}
		}
		if page.Done || len(page.Entries) == 0 {
			return true
		}
		last := page.Entries[len(page.Entries)-1]
		row = string(last.GetCell().GetRow())
		request = &pb.WalkRequest{
			Group: uint32(group), Table: uint32(table), FromRow: []byte(row), Column: []byte(column), Limit: walkPage,
			After: last.Cell, AfterTs: last.Ts,
		}
	}
}

// columnText is a column's name in tables; an acknowledgment column shows as ack_O.
func columnText(c *pb.Cell) string {
	name := printable(string(c.GetColumn()))
	if mvcc.Class(c.GetClass()) == mvcc.ClassAck {
		return "ack_" + name
	}
	return name
}

// cut says that a listing ended early.
func (r *run) cut(limit int) {
	_, _ = fmt.Fprintf(r.Stderr, "%s: the first %d; --limit shows more\n", r.Name, limit)
}
