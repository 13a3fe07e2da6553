package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/health"
	"github.com/percolator-go/percolator/node"
)

// This file injects faults into nodes and evaluates the alerts over their metrics with Prometheus's
// promtool. The tests of alerts are skipped without promtool.

var (
	alertsFile    = filepath.Join("..", "deploy", "prometheus", "alerts.yml")
	dashboardFile = filepath.Join("..", "deploy", "grafana", "percolator.json")
	operatingFile = filepath.Join("..", "docs", "operating", "alerts.md")
	alertName     = regexp.MustCompile(`- alert: (\w+)`)
	metricName    = regexp.MustCompile(`percolator_\w+`)
)

func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// promtool runs Prometheus's tool.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("no promtool: install Debian's package prometheus")
	}
	if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// scrape is the result of one scrape of some nodes: series by instance. A node that is down has
// only the series up, which is 0.
type scrape map[string]map[string]float64

func scrapeAll(ctx context.Context, t *testing.T, nodes ...*node.Node) scrape {
	t.Helper()
	out := scrape{}
	for i, n := range nodes {
		instance := fmt.Sprint("n", i)
		if out[instance] = map[string]float64{"up": 0}; n != nil {
			out[instance] = series(ctx, t, n)
			out[instance]["up"] = 1
		}
	}
	return out
}

// grows matches the series that never decrease.
var grows = regexp.MustCompile(`_(total|bucket|sum|count)(\{|$)`)

// timeline writes the input series for promtool, over 5 min: counters increase evenly from their
// value in one scrape to that in the other; gauges have the first value for 25 s and then the
// second. A series that only the second scrape has begins after 25 s with its value: it never
// grows.
func timeline(before, after scrape) string {
	const steps = 60
	var b strings.Builder
	for instance, all := range after {
		for name, to := range all {
			if strings.HasPrefix(name, "percolator_certs_expiry") ||
				strings.HasPrefix(name, "percolator_backup_last_success") { // promtool's clock begins at 0
				to -= float64(time.Now().Unix())
			}
			from, there := before[instance][name]
			values := fmt.Sprintf("%gx4 %gx%d", from, to, steps-5)
			if !there {
				values = fmt.Sprintf("_x5 %gx%d", to, steps-5)
			} else if grows.MatchString(name) {
				values = fmt.Sprintf("%g%+gx%d", from, (to-from)/steps, steps)
			}
			name, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
			labels = strings.TrimSuffix(labels, ",")
			if labels != "" {
				labels = "," + labels
			}
			fmt.Fprintf(&b, "      - series: '%s{job=\"percolator\",instance=\"%s\"%s}'\n"+
				"        values: '%s'\n", name, instance, labels, values)
		}
	}
	return b.String()
}

// promptAlerts are the alerts that fire at the first evaluation after the fault: none waits for a
// killed node, a parked row, a stuck lock, a full disk, a wrong clock or a lost quorum to recover.
const promptAlerts = "PercolatorNodeDown PercolatorObserverParked PercolatorLockStuck PercolatorDiskFull " +
	"PercolatorClockOff PercolatorMetaUnavailable "

// checkAlerts fails unless each of these alerts fires at the end of the timeline between the
// scrapes, and those of promptAlerts within 5 s of the change. Without alerts it fails if any
// fires.
func checkAlerts(t *testing.T, before, after scrape, alerts ...string) {
	t.Helper()
	rules, err := filepath.Abs(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [%q]\nevaluation_interval: 5s\ntests:\n  - interval: 5s\n"+
		"    input_series:\n%s    promql_expr_test:\n", rules, timeline(before, after))
	expect := func(matching, at string, firing int) {
		fmt.Fprintf(&b, "      - expr: clamp_max(count(ALERTS{alertstate=\"firing\"%s}) or vector(0), 1)\n"+
			"        eval_time: %s\n        exp_samples: [{labels: '{}', value: %d}]\n", matching, at, firing)
	}
	for _, name := range alerts {
		matching := fmt.Sprintf(",alertname=%q", name)
		expect(matching, "5m", 1)
		if strings.Contains(promptAlerts, name+" ") {
			expect(matching, "20s", 0)
			expect(matching, "30s", 1)
		}
	}
	if len(alerts) == 0 {
		expect("", "5m", 0)
	}
	file := filepath.Join(t.TempDir(), "test.yml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", file)
}

// exports are the declared metrics under their names in Prometheus.
func exports() map[string]bool {
	out := map[string]bool{}
	for _, name := range node.MetricNames() {
		out[name] = true
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			out[name+suffix] = strings.HasSuffix(name, "_seconds") || strings.Contains(name, "_batch_") ||
				strings.HasSuffix(name, "_mutations")
		}
	}
	return out
}

// TestMonitoringNamesWhatExists: every metric in the dashboard and the alerts is declared, and
// every alert has a runbook. TestEveryMetricIsExported compares the declared metrics with a running
// node.
func TestMonitoringNamesWhatExists(t *testing.T) {
	known := exports()
	rules := readText(t, alertsFile)
	for _, text := range []string{rules, readText(t, dashboardFile)} {
		for _, name := range metricName.FindAllString(text, -1) {
			if !known[name] {
				t.Errorf("no node exports %s", name)
			}
		}
	}
	book := readText(t, operatingFile)
	for _, m := range alertName.FindAllStringSubmatch(rules, -1) {
		if !strings.Contains(book, "\n### "+m[1]+"\n") ||
			!strings.Contains(rules, "alerts.md#"+strings.ToLower(m[1])+"\n") {
			t.Errorf("%s has no runbook in docs/operating/alerts.md, or does not point there", m[1])
		}
	}
	promtool(t, "check", "rules", alertsFile)
	promtool(t, "check", "rules", expressions(t))
	promtool(t, "check", "config", filepath.Join(filepath.Dir(alertsFile), "prometheus.yml"))
}

// TestAlertsHaveTheThresholdsOfDoctor: an alert and a finding on the same fault have one threshold,
// so that no alert fires for a state that doctor accepts.
func TestAlertsHaveTheThresholdsOfDoctor(t *testing.T) {
	rules, limits := readText(t, alertsFile), health.Thresholds()
	limits["percolator_certs_expiry_timestamp_seconds"] = certs.ExpiryWarning.Seconds()
	for metric, want := range limits {
		found := regexp.MustCompile(metric+`[^<>\n]*[<>]=? ([0-9.]+)(?: \* ([0-9.]+))?\n`).
			FindAllStringSubmatch(rules, -1)
		if len(found) != 1 {
			t.Errorf("%d alerts compare %s with a number", len(found), metric)
			continue
		}
		got, err := strconv.ParseFloat(found[0][1], 64)
		if factor := found[0][2]; err == nil && factor != "" {
			var by float64
			by, err = strconv.ParseFloat(factor, 64)
			got *= by
		}
		if err != nil || got != want {
			t.Errorf("the alert for %s fires at %v, doctor finds it at %v (%v)", metric, got, want, err)
		}
	}
}

// expressions writes the dashboard's expressions into a file of rules for promtool to parse.
func expressions(t *testing.T) string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Type, Title, Description string
			Targets                  []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(readText(t, dashboardFile)), &dashboard); err != nil {
		t.Fatal(err)
	}
	text, n := "groups:\n- name: dashboard\n  rules:\n", 0
	for _, p := range dashboard.Panels {
		if p.Type != "row" && (len(p.Targets) == 0 || p.Description == "") {
			t.Errorf("panel %q has no expression or no description", p.Title)
		}
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*").Replace(target.Expr)
			text += fmt.Sprintf("  - record: panel:%d\n    expr: %q\n", n, expr)
			n++
		}
	}
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// scenes are faults of nodes with the alerts that they must cause. Each returns a scrape from
// before and one from after.
var scenes = []struct {
	alerts string
	harm   func(ctx context.Context, t *testing.T) (before, after scrape)
}{
	{"PercolatorNodeDown PercolatorUnderReplicated", killOne},
	{"PercolatorMetaUnavailable PercolatorTabletLeaderless", killTwo},
	{"PercolatorObserverParked PercolatorObserverStuck PercolatorObserverBehind PercolatorLockStuck",
		spoilObservers},
	{"PercolatorCommitsUnknown", loseReplies},
	{"PercolatorDiskFull", fillDisk},
	{"PercolatorLogSyncSlow", slowDisk},
	{"PercolatorStoreDamaged", damageStore},
	{"PercolatorClockOff", setClock},
	{"PercolatorCertificateExpires", expireSoon},
	{"PercolatorCertificateExpired PercolatorCertificateExpires", expired},
	{"PercolatorConnectionFlood", flood},
	{"PercolatorOverloaded", overload},
	{"PercolatorBackupLate", failBackup},
	{"PercolatorTabletsMany", splitOften},
	{"PercolatorStoreStalled PercolatorReplicaClosed PercolatorReplicaStale PercolatorExpiryLate", otherMetrics},
}

// TestAlertsFire: each alert fires over the metrics of nodes with its fault, and none over those of
// healthy ones.
func TestAlertsFire(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("no promtool: install Debian's package prometheus")
	}
	if testing.Short() {
		t.Skip("it takes whole clusters")
	}
	tested := ""
	for _, s := range scenes {
		tested += " " + s.alerts + " "
		t.Run(strings.ReplaceAll(s.alerts, "Percolator", ""), func(t *testing.T) {
			t.Parallel() // they wait for most of the time
			before, after := s.harm(within(t, 2*time.Minute), t)
			checkAlerts(t, before, after, strings.Fields(s.alerts)...)
		})
	}
	for _, m := range alertName.FindAllStringSubmatch(readText(t, alertsFile), -1) {
		if !strings.Contains(tested, " "+m[1]+" ") {
			t.Errorf("nothing is harmed to set off %s", m[1])
		}
	}
}
