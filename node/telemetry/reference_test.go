package telemetry

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/percolator-go/percolator/internal/exposition"
)

// TestReferenceOfMetrics: docs/reference/metrics.md equals the text generated from the declared
// families. `make generate` writes it (UPDATE=1 in the environment).
func TestReferenceOfMetrics(t *testing.T) {
	name := filepath.Join("..", "..", "docs", "reference", "metrics.md")
	want := reference()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not up to date: run make generate", name)
	}
}

// TestNamesOfMetrics: names follow Prometheus's conventions.
func TestNamesOfMetrics(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range families {
		total := strings.HasSuffix(f.Name, "_total")
		switch {
		case seen[f.Name]:
			t.Errorf("%s is declared twice", f.Name)
		case total != (f.Kind == prometheus.CounterValue):
			t.Errorf("%s: counters, and no others, end in _total", f.Name)
		case strings.Count(f.Name, "_") < 2:
			t.Errorf("%s is not percolator_<subsystem>_<thing>_<unit>", f.Name)
		case !strings.HasSuffix(f.Help, "."):
			t.Errorf("%s: its meaning %q is not a sentence", f.Name, f.Help)
		}
		for _, unit := range []string{"_ms", "_millis", "_us", "_ns", "_kb", "_mb", "_percent"} {
			if strings.Contains(f.Name+"_", unit+"_") {
				t.Errorf("%s: units are seconds, bytes and ratios", f.Name)
			}
		}
		seen[f.Name] = true
	}
}

const referenceHead = `# Metrics

Every node serves these under ` + "`/metrics`" + ` on its HTTP address, beside Go's (` + "`go_`" + `) and the
process's (` + "`process_`" + `). The list is made from the code by ` + "`make generate`" + `.

Counters begin at 0 when the process starts, figures of a tablet's leader when it begins to lead.
Names that end in ` + "`_total`" + ` are counters. A histogram NAME is exported as ` + "`NAME_bucket`" + `,
` + "`NAME_sum`" + ` and ` + "`NAME_count`" + `. A series is there as soon as there is something to say: a node
that is alone has none of the way to other nodes, one in memory none of disks, and figures of the
whole cluster are on the node that leads meta. ` + "`tablet`" + ` is a tablet's number, of which there are
at most ` + "`split-max-tablets`" + `; ` + "`observer`" + ` and ` + "`name`" + ` are names that programs give, 1,024 at
most; all other labels have a few fixed values.

Alerts and what to do are in [operating/alerts.md](../operating/alerts.md#alerts); a dashboard is
` + "`deploy/grafana/percolator.json`" + `.
`

// reference returns the text of docs/reference/metrics.md.
func reference() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	sorted := slices.Clone(families)
	slices.SortFunc(sorted, func(a, b exposition.Family) int { return strings.Compare(a.Name, b.Name) })
	last := ""
	for _, f := range sorted {
		if s := strings.SplitN(f.Name, "_", 3)[1]; s != last {
			fmt.Fprintf(&b, "\n## %s\n\n| name | type | unit | labels | meaning |\n"+
				"|---|---|---|---|---|\n", s)
			last = s
		}
		kind := map[prometheus.ValueType]string{
			prometheus.CounterValue: "counter", prometheus.GaugeValue: "gauge",
			prometheus.UntypedValue: "histogram",
		}[f.Kind]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.Name, kind, unit(f.Name),
			strings.Join(f.Labels, ", "), strings.ReplaceAll(f.Help, "|", "\\|"))
	}
	return b.String()
}

// unit returns the unit in a metric's name.
func unit(name string) string {
	name = strings.TrimSuffix(name, "_total")
	for _, u := range []struct{ suffix, unit string }{
		{"_timestamp_seconds", "Unix time"}, {"_seconds", "s"}, {"_bytes", "bytes"},
	} {
		if strings.HasSuffix(name, u.suffix) {
			return u.unit
		}
	}
	return ""
}
