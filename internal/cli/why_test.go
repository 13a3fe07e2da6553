package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// TestWhy covers every verdict. Entries are written as for TestHistory; one that begins with "@row
// " belongs to another row, such as a primary's. Arguments: observer=, table=; state of the
// observer: absent, retired, paused, unlinked, running=, stuck=, limit=. The oracle's time is 1 s,
// so expiries below 262144000 have passed.
func TestWhy(t *testing.T) {
	seen := map[string]bool{}
	datadriven.RunTest(t, "testdata/why", func(t *testing.T, d *datadriven.TestData) string {
		cluster := bankCluster()
		observer, table := "count", "bank"
		d.MaybeScanArgs(t, "observer", &observer)
		d.MaybeScanArgs(t, "table", &table)
		cluster.tables = append(cluster.tables, &pb.Table{Id: 17, Name: "other"})
		cluster.rows = map[string][]*pb.HistoryEntry{}
		for line := range strings.Lines(d.Input) {
			line, row := strings.TrimSuffix(line, "\n"), "Bob"
			if rest, other := strings.CutPrefix(line, "@"); other {
				row, line, _ = strings.Cut(rest, " ")
			}
			e := parseEntry(t, row, line)
			if e.Lock != nil && d.HasArg("alive") {
				e.Lock.Expiry = uint64(mvcc.TimestampAt(3000))
			}
			if e.Intent != nil && d.HasArg("alive") {
				e.Intent.Expiry = uint64(mvcc.TimestampAt(3000))
			}
			cluster.rows[row] = append(cluster.rows[row], e)
		}
		applyState(t, d, cluster.observers[1])
		if d.HasArg("absent") {
			cluster.observers = nil
		}
		code, stdout, stderr := runApp(t, cluster, nil, "why", table, "Bob", observer)
		if code != shell.ExitDone || stderr != "" {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		_, text, _ := runApp(t, cluster, nil, "why", table, "Bob", observer, "-o", "json")
		var out struct{ Verdict, Sentence string }
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		seen[out.Verdict] = true
		if !strings.HasPrefix(stdout, out.Sentence) {
			t.Errorf("JSON reports %q", out.Sentence)
		}
		if len(cluster.sent) > 0 {
			t.Errorf("why has sent %v", cluster.sent)
		}
		return fmt.Sprintf("(%s)\n%s", out.Verdict, stdout)
	})
	for verdict := range strings.SplitSeq(inspect.Verdicts(), ", ") {
		if !seen[verdict] {
			t.Errorf("no case for %s", verdict)
		}
	}
}

// TestWhyOfAWideRow: a verdict does not depend on cells omitted from an answer.
func TestWhyOfAWideRow(t *testing.T) {
	cluster := bankCluster()
	cluster.wide = true
	cluster.rows = map[string][]*pb.HistoryEntry{"Bob": {
		parseEntry(t, "Bob", "W aaa 9 7 put x"), parseEntry(t, "Bob", "W bal 9 7 put x"),
		parseEntry(t, "Bob", "A count 12 10"),
	}}
	code, stdout, stderr := runApp(t, cluster, nil, "why", "bank", "Bob", "count")
	if code != shell.ExitDone || !strings.HasPrefix(stdout, "It ran at 10") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}

// applyState sets the state of count.
func applyState(t *testing.T, d *datadriven.TestData, o *pb.ObserverState) {
	t.Helper()
	d.MaybeScanArgs(t, "running", &o.Status.Running)
	d.MaybeScanArgs(t, "limit", &o.Status.Limit)
	d.MaybeScanArgs(t, "queued", &o.Status.Queued)
	d.MaybeScanArgs(t, "stuck", &o.Status.Stuck)
	if d.HasArg("outside") {
		o.Status.Outside = &pb.OutsideWait{Error: "429 slow down"}
		d.ScanArgs(t, "outside", &o.Status.Outside.WaitedMs, &o.Status.Outside.NextMs)
	}
	row := &pb.ObserverRow{Row: []byte("Bob"), Overdue: d.HasArg("overdue")}
	d.MaybeScanArgs(t, "runningms", &row.RunningMs)
	d.MaybeScanArgs(t, "retries", &row.Retries)
	d.MaybeScanArgs(t, "unserved", &row.Unserved)
	d.MaybeScanArgs(t, "runs", &row.Runs)
	d.MaybeScanArgs(t, "cycle", &row.Cycle)
	d.MaybeScanArgs(t, "pausems", &row.PauseMs)
	if row.RunningMs+uint64(row.Retries)+uint64(row.Runs)+row.PauseMs > 0 {
		o.Status.Rows = []*pb.ObserverRow{{Row: []byte("Joe"), RunningMs: 1}, row}
	}
	o.Info.Retired, o.Info.Paused = d.HasArg("retired"), d.HasArg("paused")
	if d.HasArg("unlinked") {
		o.Linked, o.Status = false, nil
	}
}
