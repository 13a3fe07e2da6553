package cli

import (
	"fmt"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

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
