package cells

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/pbjson"
)

// This file has the expiry of a table's cells: its flag, its command and its listing.

// never is the age of cells that do not expire.
const never = "never"

// expiryFlag is --expire-after.
type expiryFlag struct{ ages []string }

func addExpiry(cmd *cobra.Command) *expiryFlag {
	f := &expiryFlag{}
	cmd.Flags().StringArrayVar(&f.ages, "expire-after", nil,
		"AGE (30d, 12h, never) at which cells are deleted, or COLUMN=AGE for one column; repeatable")
	return f
}

// parse returns the expiry. The last = of a value ends the column's name.
func (f *expiryFlag) parse(cmd *cobra.Command, in *shell.InputFlags) (e percolator.Expiry, err error) {
	for _, one := range f.ages {
		at := strings.LastIndexByte(one, '=')
		age, ok := shell.ParseAge(one[at+1:])
		if one[at+1:] == never {
			age, ok = 0, true
		} else if age < time.Second {
			ok = false
		}
		if !ok {
			return e, shell.Usagef(cmd, "--expire-after %s: give an age of at least 1s, such as 30d, or never, for all columns or as COLUMN=AGE",
				one)
		}
		if at < 0 {
			e.After = age
			continue
		}
		column, err := in.Bytes(one[:at])
		if err != nil {
			return e, err
		}
		if e.Columns == nil {
			e.Columns = map[string]time.Duration{}
		}
		e.Columns[column] = age
	}
	return e, nil
}

// tableSet replaces the whole expiry: the command line is the complete new setting.
func tableSet(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set NAME --expire-after AGE...",
		Short: "Change after which age a table's cells expire",
		Long: `Replace the expiry of a table's cells by what is given: AGE for all columns, COLUMN=AGE for one.
never ends it. Cells that are older are then deleted in transactions of the cluster's own; observers see
deletions, and snapshots keep what they have seen. A cell is deleted up to a twentieth of its age late, and
at most an hour, if the deletions keep up; ` + "`doctor`" + ` and metrics report their lag.`,
		Example: "table set events --expire-after 90d --expire-after ip=30d\n" +
			"table set events --expire-after never",
	}
	in, expiry := shell.AddInput(cmd), addExpiry(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(expiry.ages) == 0 {
			return shell.Usagef(cmd, "give --expire-after")
		}
		expire, err := expiry.parse(cmd, in)
		if err != nil {
			return err
		}
		return d.Conn.Run(cmd, func(ctx context.Context, s *shell.Session) error {
			return d.Out.Done(s.DB.SetExpiry(ctx, args[0], expire), "table %s is changed", args[0])
		})
	}
	return d.WithClient(cmd)
}

// expiryOut is the age of one column, or of all others, in JSON.
type expiryOut struct {
	Column  *pbjson.Bytes `json:"column,omitempty"` // nil: all others
	AfterMs uint64        `json:"after_ms"`         // 0: never
}

func expiryOuts(e *pb.TableExpiry) (out []expiryOut) {
	for _, c := range e.GetColumns() {
		name := pbjson.Bytes(c.Column)
		out = append(out, expiryOut{&name, c.AfterMs})
	}
	if e.GetAfterMs() != 0 {
		out = append(out, expiryOut{nil, e.AfterMs})
	}
	return out
}

// expiryText lists the ages as the flag takes them.
func expiryText(e *pb.TableExpiry) string {
	var out []string
	if e.GetAfterMs() != 0 {
		out = append(out, ageText(e.AfterMs))
	}
	for _, c := range e.GetColumns() {
		out = append(out, inspect.Printable(string(c.Column))+"="+ageText(c.AfterMs))
	}
	return strings.Join(out, ", ")
}

// ageText formats an age, in days where they are whole.
func ageText(ms uint64) string {
	age := time.Duration(ms) * time.Millisecond
	switch day := 24 * time.Hour; {
	case ms == 0:
		return never
	case age%day == 0:
		return strconv.FormatInt(int64(age/day), 10) + "d"
	}
	return age.String()
}
