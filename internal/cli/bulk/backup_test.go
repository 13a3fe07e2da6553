package bulk

import (
	"testing"
	"time"

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

func TestDaysText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "-", 10 * time.Minute: "10m", 90 * time.Second: "1m30s", 90 * time.Minute: "1h30m", 24 * time.Hour: "24h",
		48 * time.Hour: "2d", 500 * time.Millisecond: "500ms", time.Hour + 5*time.Second: "1h0m5s",
	} {
		if got := daysText(d.Milliseconds()); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
