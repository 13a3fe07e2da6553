package cli

import (
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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

// limitFlag is a flag for the most that a listing shows.
type limitFlag struct {
	value *int
	least int
}

var _ pflag.Value = limitFlag{}

// addLimit adds --limit: 1000 unless it says otherwise, for a table of millions of rows
// would scroll by for minutes.
func addLimit(cmd *cobra.Command, value *int, least int, usage string) {
	*value = 1000
	cmd.Flags().Var(limitFlag{value, least}, "limit", usage)
}

// Set implements pflag.Value.
func (f limitFlag) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < f.least || n > math.MaxInt32-1 {
		return fmt.Errorf("give %d to %d", f.least, math.MaxInt32-1)
	}
	*f.value = n
	return nil
}

// String implements pflag.Value.
func (f limitFlag) String() string {
	if f.value == nil {
		return ""
	}
	return strconv.Itoa(*f.value)
}

// Type implements pflag.Value.
func (limitFlag) Type() string { return "int" }

// cut says that a listing ended early.
func (r *run) cut(limit int) {
	r.note("the first %d; --limit shows more", limit)
}
