package bulk

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/percolator-go/percolator/internal/cli/shell"
)

// TestRateOfBackups: a backup has a rate limit by default, which can be lifted.
func TestRateOfBackups(t *testing.T) {
	for text, want := range map[string]int64{"": 8 << 20, "0": 0, "1MiB": 1 << 20} {
		cmd, copying := &cobra.Command{}, copyFlags{rate: createRate}
		copying.register(cmd)
		if text != "" {
			if err := cmd.Flags().Set("rate", text); err != nil {
				t.Fatal(err)
			}
		}
		if o, err := copying.options(cmd, &shell.Meter{}); err != nil || o.Rate != want || o.By == "" {
			t.Errorf("--rate %q: %+v, %v", text, o, err)
		}
	}
}
