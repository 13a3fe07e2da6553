package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/health"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/nodeparts"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/workload"
)

// This file harms nodes and has Prometheus's own tool evaluate the alerts over what they
// export. The tests of alerts are skipped where there is no promtool.

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

// scrape is what one look at some nodes finds: series by instance. Those of a node that is
// down are missing.
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

// grows matches the series that only grow.
var grows = regexp.MustCompile(`_(total|bucket|sum|count)(\{|$)`)

// timeline writes what promtool takes the series from, over five minutes: counters go evenly
// from their value in one scrape to that in the other; gauges have the one's for 25 seconds
// and then the other's. A series that only the other has begins then: it never grows.
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

// promptAlerts are the alerts that fire at the first evaluation after the harm: none waits whether
// a node that was killed, a parked row, a stuck lock, a full disk, a clock that is off or a
// quorum that was lost will pass.
const promptAlerts = "PercolatorNodeDown PercolatorObserverParked PercolatorLockStuck PercolatorDiskFull " +
	"PercolatorClockOff PercolatorMetaUnavailable "

// checkAlerts fails unless all these alerts fire after what is between the scrapes, those that
// are promptAlerts within five seconds; with none, unless none at all fires.
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

// exports are the metrics under whose names Prometheus knows the declared ones.
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

// TestMonitoringNamesWhatExists: every metric in dashboards and alerts is declared, which
// TestEveryMetricIsExported holds against a running node, and every alert has a runbook.
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

// TestAlertsHaveTheThresholdsOfDoctor: what an alert and a finding are both about has one
// limit, so that nobody is woken by what doctor calls well.
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

// expressions writes the dashboard's expressions into a file of rules, for promtool to parse.
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
			t.Errorf("panel %q shows nothing, or does not say what", p.Title)
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

// scenes are what is done to nodes, by the alerts that it must set off. Each returns a
// scrape of before and one of after.
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
	{"PercolatorStoreStalled PercolatorReplicaClosed PercolatorReplicaStale", pretend},
}

// TestAlertsFire: each alert fires over what nodes export that are harmed accordingly, and
// none over what sound ones do.
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

// cluster3 is three sound nodes, the first of which leads meta, and what they export.
func cluster3(ctx context.Context, t *testing.T) (*rig, scrape) {
	t.Helper()
	r := three(ctx, t, 1, func(_ int, c *node.Config) {
		c.HTTP, c.Logger = "127.0.0.1:0", slog.New(slog.DiscardHandler)
	})
	r.lead(ctx, cluster.MetaTablet, 0)
	var before scrape
	comesTrue(ctx, t, "all is well", func() bool {
		before = scrapeAll(ctx, t, r.nodes...)
		under, there := before["n0"]["percolator_placement_under_replicated_tablets"]
		return there && under == 0 && before["n0"]["percolator_placement_target_replicas"] == 3
	})
	return r, before
}

func killOne(ctx context.Context, t *testing.T) (before, after scrape) {
	r, before := cluster3(ctx, t)
	checkAlerts(t, before, before)
	r.crash(2)
	comesTrue(ctx, t, "placement sees it", func() bool {
		after = scrapeAll(ctx, t, r.nodes...)
		return after["n0"]["percolator_placement_under_replicated_tablets"] > 0
	})
	return before, after
}

func killTwo(ctx context.Context, t *testing.T) (before, after scrape) {
	r, before := cluster3(ctx, t)
	r.crash(1)
	r.crash(2)
	comesTrue(ctx, t, "the node left knows", func() bool {
		after = scrapeAll(ctx, t, r.nodes...)
		return after["n0"]["percolator_meta_up"] == 0 &&
			after["n0"]["percolator_tablets_leaderless_longest_seconds"] > 3
	})
	return before, after
}

// spoilObservers has a failing observer, one that does not heed its context, and a client
// that leaves a lock; then ten minutes pass.
func spoilObservers(ctx context.Context, t *testing.T) (before, after scrape) {
	release, passed := make(chan struct{}), atomic.Int64{}
	began := time.Now()
	cfg := node.DefaultConfig()
	cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Store.InMemory = "", "127.0.0.1:0", true, true
	quick(&cfg)
	cfg.Observers = func(r *percolator.Registry) {
		r.Strong("fails", input, func(context.Context, *percolator.Tx, percolator.Notification) error {
			return errors.New("always")
		}, percolator.MaxAttempts(1))
		r.Strong("sleeps", count, func(context.Context, *percolator.Tx, percolator.Notification) error {
			<-release
			return nil
		}, percolator.Deadline(time.Millisecond))
	}
	n, err := nodeparts.Open[node.Node](ctx, cfg, nodeparts.Parts{Clock: func() time.Time {
		return began.Add(time.Since(began) + time.Duration(passed.Load()))
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(within(t, time.Minute)); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { close(release) })
	before = scrapeAll(ctx, t, n)
	write(t, n.DB(), 0, 1)
	if err := set(ctx, n.DB(), rowOf(0), count, []byte("x")); err != nil {
		t.Fatal(err)
	}
	leaveLock(ctx, t, n.DB())
	comesTrue(ctx, t, "one is parked, one is stuck", func() bool {
		after = scrapeAll(ctx, t, n)
		return after["n0"][`percolator_observer_parked{observer="fails"}`] > 0 &&
			after["n0"][`percolator_observer_stuck{observer="sleeps"}`] > 0
	})
	passed.Store(int64(10 * time.Minute))
	comesTrue(ctx, t, "time has passed", func() bool {
		if _, err := handle.Client(n.DB()).Timestamp(ctx); err != nil {
			t.Fatal(err)
		}
		after = scrapeAll(ctx, t, n)
		return after["n0"][`percolator_observer_oldest_seconds{observer="sleeps"}`] > 300
	})
	return before, after
}

// leaveLock is a client that prewrites a cell and goes away; its lock lives for an hour.
func leaveLock(ctx context.Context, t *testing.T, db *percolator.DB) {
	t.Helper()
	client := handle.Client(db)
	id, err := client.TableID(ctx, input.Table)
	if err != nil {
		t.Fatal(err)
	}
	start, err := client.Timestamp(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cell := wire.CellPB(mvcc.Cell{Table: id, Row: "locked", Column: "c"})
	r, _, err := client.Send(ctx, wire.Position{Table: id, Row: "locked"}, &pb.TabletRequest{
		Op: &pb.TabletRequest_Prewrite{Prewrite: &pb.PrewriteRequest{
			StartTs: uint64(start), Primary: cell, Worker: &pb.Worker{},
			Expiry: uint64(mvcc.TimestampAt(start.Millis() + time.Hour.Milliseconds())),
			Writes: []*pb.CellWrite{{Cell: cell, Kind: pb.Kind_KIND_PUT, Value: []byte("x")}},
		}},
	})
	if err != nil || r.GetMutation().GetStatus() != pb.Status_STATUS_OK {
		t.Fatal(r, err)
	}
}

func loseReplies(ctx context.Context, t *testing.T) (before, after scrape) {
	cfg := node.DefaultConfig()
	cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Store.InMemory = "", "127.0.0.1:0", true, true
	n, err := nodeparts.Open[node.Node](ctx, cfg, nodeparts.Parts{Transport: func(inner txn.Transport) txn.Transport {
		return &cut{Transport: inner}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(within(t, time.Minute)); err != nil {
			t.Error(err)
		}
	})
	if err := workload.Prepare(ctx, n.DB(), 2); err != nil {
		t.Fatal(err)
	}
	before = scrapeAll(ctx, t, n)
	column := percolator.Column{Table: workload.Table, Name: "v"}
	err = n.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("00", column, []byte("x"))
		tx.Set("ff", column, []byte("x"))
		return nil
	})
	if !errors.Is(err, percolator.ErrCommitUnknown) {
		t.Fatal(err)
	}
	return before, scrapeAll(ctx, t, n)
}

func fillDisk(ctx context.Context, t *testing.T) (before, after scrape) {
	r := newRig(t, 1, func(_ int, c *node.Config) {
		c.HTTP, c.Dir, c.Store.InMemory = "127.0.0.1:0", t.TempDir(), false
		c.Logger = slog.New(slog.DiscardHandler)
	})
	before = scrapeAll(ctx, t, r.nodes...)
	r.free[0].Store(1)
	_ = r.stores[0].Room(0) // looks
	after = scrapeAll(ctx, t, r.nodes...)
	r.free[0].Store(math.MaxUint64)
	_ = r.stores[0].Room(0)
	return before, after
}

func slowDisk(ctx context.Context, t *testing.T) (before, after scrape) {
	n := openWith(t, t.TempDir(), nodeparts.Parts{SyncDelay: 150 * time.Millisecond},
		func(c *node.Config) { c.HTTP = "127.0.0.1:0" })
	before = scrapeAll(ctx, t, n)
	if err := workload.Prepare(ctx, n.DB(), 1); err != nil {
		t.Fatal(err)
	}
	return before, scrapeAll(ctx, t, n)
}

func damageStore(ctx context.Context, t *testing.T) (before, after scrape) {
	dir := t.TempDir()
	first := open(t, dir, nil)
	if err := workload.Prepare(ctx, first.DB(), 4); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(ctx); err != nil { // which writes a table
		t.Fatal(err)
	}
	n := open(t, dir, func(c *node.Config) {
		c.HTTP, c.Logger = "127.0.0.1:0", slog.New(slog.DiscardHandler)
	})
	before = scrapeAll(ctx, t, n)
	tables, err := filepath.Glob(filepath.Join(dir, "db", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	flipBit(t, tables[0])
	if err := n.VerifyStore(); err == nil {
		t.Fatal("the damage is not found")
	}
	return before, scrapeAll(ctx, t, n)
}

func setClock(ctx context.Context, t *testing.T) (before, after scrape) {
	r, before := cluster3(ctx, t)
	r.stop(2)
	r.ahead = map[int]time.Duration{2: 2 * time.Second}
	r.start(2)
	id := r.id(2)
	comesTrue(ctx, t, "placement reads the clocks", func() bool {
		after = scrapeAll(ctx, t, r.nodes...)
		return after["n0"][fmt.Sprintf(`percolator_clock_offset_seconds{node="%d"}`, id)] > 1
	})
	return before, after
}

func expireSoon(ctx context.Context, t *testing.T) (before, after scrape) {
	dir := t.TempDir()
	if _, err := certs.CreateCA(certs.Request{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if _, err := certs.CreateNode(certs.Request{
		Dir: dir, Name: "n1", Hosts: []string{"127.0.0.1"}, Lifetime: 10 * 24 * time.Hour,
	}); err != nil {
		t.Fatal(err)
	}
	n := open(t, "", func(c *node.Config) {
		c.HTTP, c.Insecure, c.Certs = "127.0.0.1:0", false, dir
		c.Logger = slog.New(slog.DiscardHandler)
	})
	before = scrapeAll(ctx, t, n)
	return before, before
}

// expired is expireSoon with what a node exports later, for one does not start with an expired certificate.
func expired(ctx context.Context, t *testing.T) (before, after scrape) {
	before, _ = expireSoon(ctx, t)
	before["n0"][`percolator_certs_expiry_timestamp_seconds{file="node.crt"}`] = 1
	return before, before
}

// flood opens more connections to the address for clients than may shake hands at once.
func flood(ctx context.Context, t *testing.T) (before, after scrape) {
	n := open(t, "", func(c *node.Config) {
		c.Listen, c.HTTP, c.Logger = "127.0.0.1:0", "127.0.0.1:0", slog.New(slog.DiscardHandler)
	})
	before = scrapeAll(ctx, t, n)
	for range 512 + 200 {
		conn, err := net.Dial("tcp", n.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	comesTrue(ctx, t, "connections are closed", func() bool {
		after = scrapeAll(ctx, t, n)
		return after["n0"][`percolator_connections_displaced_total{listener="clients"}`] >= 200
	})
	return before, after
}

// overload has many clients write into a tablet whose queue holds one operation.
func overload(ctx context.Context, t *testing.T) (before, after scrape) {
	n := open(t, t.TempDir(), func(c *node.Config) {
		c.HTTP, c.Batch.Tablet.QueueLimit = "127.0.0.1:0", 1
		c.Logger = slog.New(slog.DiscardHandler)
	})
	if err := workload.Prepare(ctx, n.DB(), 1); err != nil {
		t.Fatal(err)
	}
	db, err := percolator.Dial(ctx, []string{n.Addr()}, percolator.ClientConfig{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	before = scrapeAll(ctx, t, n)
	writing, stop := context.WithCancel(ctx)
	var writers sync.WaitGroup
	defer writers.Wait()
	defer stop()
	for i := range 32 {
		writers.Go(func() {
			for writing.Err() == nil {
				_ = set(writing, db, fmt.Sprint(i),
					percolator.Column{Table: workload.Table, Name: "v"}, []byte("x"))
			}
		})
	}
	comesTrue(ctx, t, "an operation is refused", func() bool {
		after = scrapeAll(ctx, t, n)
		return after["n0"][`percolator_client_errors_total{code="overloaded"}`] > 0
	})
	return before, after
}

// pretend is for what other tests show to be exported, and what takes too long here:
// TestClosedReplicaIsSeen, TestStaleReplicaIsSeen, and a disk slower than compactions.
// splitOften makes as many tablets as the policy allows.
func splitOften(ctx context.Context, t *testing.T) (before, after scrape) {
	n := open(t, "", func(c *node.Config) { c.HTTP, c.Splits.MaxTablets = "127.0.0.1:0", 5 })
	before = scrapeAll(ctx, t, n)
	spec := percolator.TableSpec{Name: "t", SplitKeys: []string{"a", "b", "c"}}
	if err := n.DB().CreateTable(ctx, spec); err != nil {
		t.Fatal(err)
	}
	return before, scrapeAll(ctx, t, n)
}

func pretend(ctx context.Context, t *testing.T) (before, after scrape) {
	n := open(t, "", func(c *node.Config) { c.HTTP = "127.0.0.1:0" })
	before, after = scrapeAll(ctx, t, n), scrapeAll(ctx, t, n)
	for _, name := range []string{
		"percolator_store_stalled", "percolator_replicas_closed", "percolator_replicas_found_stale_total",
	} {
		if value, there := after["n0"][name]; !there || value != 0 {
			t.Errorf("%s is %v on a sound node", name, value)
		}
		after["n0"][name] = 1
	}
	return before, after
}
