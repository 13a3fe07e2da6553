package inspectcmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
)

// `verify` compares replicas by checksums, which the nodes compute.

// VerifyCommand returns the command that compares the replicas of all tablets.
func VerifyCommand(d *shell.Deps) *cobra.Command {
	return d.WithClient(&cobra.Command{
		Use:   "verify",
		Short: "Compare the replicas of every tablet",
		Long: `Compare the replicas of every tablet: each computes a checksum of its data as of one
index of the tablet's log. The cluster continues to serve. The exit code is 1 if
replicas differ, or could not be compared.`,
		Example: "verify\nverify -o json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return d.Conn.RunLong(cmd, CompareReplicas) },
	})
}

// verifyJSON is a tablet's comparison in JSON.
type verifyJSON struct {
	Tablet uint64 `json:"tablet"`
	shell.RangeOut
	Equal    bool          `json:"equal"`
	Error    string        `json:"error,omitempty"` // why nothing was compared
	Replicas []replicaJSON `json:"replicas"`
}

type replicaJSON struct {
	Node     uint64 `json:"node"`
	Checksum string `json:"checksum,omitempty"` // 16 hexadecimal digits
	Entries  uint64 `json:"entries"`
	Index    uint64 `json:"index"` // of the log
	Error    string `json:"error,omitempty"`
}

// CompareReplicas verifies the replicas of one tablet after the other, which bounds the load of reads.
func CompareReplicas(ctx context.Context, s *shell.Session) error {
	names, err := s.Names(ctx)
	if err != nil {
		return err
	}
	tablets, err := s.Tablets(ctx)
	if err != nil {
		return err
	}
	list := s.Out.Listing("TABLET, FROM, BEFORE, REPLICAS, ENTRIES, CHECKSUM, RESULT", 0, 3, 4)
	different, unknown := 0, 0
	for _, t := range tablets {
		v := &verifyJSON{
			Tablet: t.TabletId, RangeOut: shell.NewRangeOut(t, names), Replicas: []replicaJSON{},
		}
		answer, err := s.Admin.VerifyTablet(ctx, &pb.VerifyTabletRequest{TabletId: t.TabletId})
		switch {
		case err == nil:
			v.take(answer)
		case ctx.Err() != nil:
			return err
		default:
			v.Error = err.Error()
		}
		switch {
		case v.differs():
			different++
		case !v.Equal:
			unknown++
		}
		list.Add(v, v.line()...)
	}
	if err := list.End(); err != nil {
		return err
	}
	switch {
	case different > 0:
		return fmt.Errorf("%d of %d tablets have replicas that differ", different, len(tablets))
	case unknown > 0:
		return fmt.Errorf("%d of %d tablets could not be compared", unknown, len(tablets))
	}
	return nil
}

// take converts an answer.
func (v *verifyJSON) take(answer *pb.VerifyTabletResponse) {
	v.Equal = answer.Equal
	for _, c := range answer.Replicas {
		out := replicaJSON{Node: c.NodeId, Error: c.Error}
		if c.Result.GetDone() {
			out.Checksum = fmt.Sprintf("%016x", c.Result.Checksum)
			out.Entries, out.Index = c.Result.Entries, c.Result.Index
		}
		v.Replicas = append(v.Replicas, out)
	}
}

// differs reports whether two replicas have results, and not the same.
func (v *verifyJSON) differs() bool {
	var first *replicaJSON
	for i := range v.Replicas {
		c := &v.Replicas[i]
		switch {
		case c.Checksum == "":
		case first == nil:
			first = c
		case c.Checksum != first.Checksum || c.Entries != first.Entries:
			return true
		}
	}
	return false
}

// line returns the tablet's line in the table.
func (v *verifyJSON) line() []any {
	from, before := v.Text()
	line := []any{v.Tablet, from, before, len(v.Replicas)}
	if v.Equal {
		return append(line, v.Replicas[0].Entries, v.Replicas[0].Checksum, "equal")
	}
	if v.Error != "" {
		return append(line, "-", "-", v.Error)
	}
	var parts []string
	for _, c := range v.Replicas {
		what := c.Error
		if c.Checksum != "" {
			what = fmt.Sprintf("%s of %d entries", c.Checksum, c.Entries)
		}
		parts = append(parts, fmt.Sprintf("node %d: %s", c.Node, what))
	}
	result := "not compared"
	if v.differs() {
		result = "DIFFERENT"
	}
	return append(line, "-", "-", result+": "+strings.Join(parts, "; "))
}
