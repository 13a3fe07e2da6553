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

// tracedCluster has a chain of observers: count on bal, sum on total, and a weak one on letter; and
// the table other, which no observer observes.
func tracedCluster() *fakeCluster {
	cluster := bankCluster()
	cluster.tables = append(cluster.tables, &pb.Table{Id: 17, Name: "other"})
	cluster.catalogue.Observers = []*pb.ObserverInfo{
		{Name: "count", Table: 16, TableName: "bank", Column: []byte("bal")},
		{Name: "mail", Table: 16, TableName: "bank", Column: []byte("letter"), Weak: true},
		{Name: "sum", Table: 16, TableName: "bank", Column: []byte("total")},
	}
	cluster.rows = map[string][]*pb.HistoryEntry{}
	return cluster
}

// scanRecords makes the cluster answer scans for records from its rows, as one tablet does.
func scanRecords(cluster *fakeCluster, requests *int) {
	cluster.scanned = func(req *pb.ScanRequest) *pb.ScanResponse {
		*requests++
		page := &pb.ScanResponse{Done: true}
		for _, entries := range cluster.rows {
			for _, e := range entries {
				row := string(e.Cell.Row)
				if inspect.IsWrite(e) && e.Cell.Table == req.Span.Table && row >= string(req.Span.Start) &&
					(!req.Span.HasEnd || row < string(req.Span.End)) &&
					e.Write.CommitTs > req.Since && e.Write.CommitTs <= req.At {
					page.Cells = append(page.Cells, &pb.ReadCell{
						Cell: e.Cell, CommitTs: e.Write.CommitTs, StartTs: e.Write.StartTs,
						Deleted: e.Write.Kind == pb.Kind_KIND_DELETE,
					})
				}
			}
		}
		return page
	}
}

// TestTrace covers the chains. Entries are written as for TestHistory, those of rows other than
// Bob's after "@row ". Arguments: flags=, separated by |.
func TestTrace(t *testing.T) {
	datadriven.RunTest(t, "testdata/trace", func(t *testing.T, d *datadriven.TestData) string {
		cluster := tracedCluster()
		scans := 0
		scanRecords(cluster, &scans)
		for line := range strings.Lines(d.Input) {
			line, row := strings.TrimSuffix(line, "\n"), "Bob"
			if rest, other := strings.CutPrefix(line, "@"); other {
				row, line, _ = strings.Cut(rest, " ")
			}
			cluster.rows[row] = append(cluster.rows[row], parseEntry(t, row, line))
		}
		args, flags := []string{"trace", "bank", "Bob"}, ""
		if d.MaybeScanArgs(t, "flags", &flags); flags != "" {
			args = append(args, strings.Split(flags, "|")...)
		}
		code, stdout, stderr := runApp(t, cluster, nil, args...)
		if len(cluster.sent) > 0 {
			t.Errorf("trace has sent %v", cluster.sent)
		}
		if searches := strings.Contains(flags, "--search"); code == shell.ExitDone && searches != (scans > 0) {
			t.Errorf("%d scans, searching is %t", scans, searches)
		}
		if code != shell.ExitDone {
			stdout += "exit code " + string(rune('0'+code)) + "\n"
		}
		return stdout + stderr
	})
}

// TestTraceOfAWideRow: the cells of observers are found also if the whole row exceeds an answer,
// and the output says that it does.
func TestTraceOfAWideRow(t *testing.T) {
	cluster := tracedCluster()
	entries := []*pb.HistoryEntry{
		parseEntry(t, "Bob", "W bal 9 7 put x"), parseEntry(t, "Bob", "A count 12 10"),
		parseEntry(t, "Bob", "W total 12 10 put x"), parseEntry(t, "Bob", "A sum 15 14"),
	}
	for i := range mvcc.MaxHistory + 1 {
		entries = append(entries, parseEntry(t, "Bob", "R x 1"))
		entries[len(entries)-1].Ts = uint64(i + 1)
	}
	cluster.rows["Bob"] = entries
	code, stdout, stderr := runApp(t, cluster, nil, "trace", "bank", "Bob", "-o", "json")
	var steps []inspect.Step
	for line := range strings.Lines(stdout) {
		var step inspect.Step
		if err := json.Unmarshal([]byte(line), &step); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step)
	}
	if code != shell.ExitDone || len(steps) != 3 || steps[2].Observer != "sum" ||
		!strings.Contains(stderr, "more cells than a node returns") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}

// TestTraceOfALoop: a row that triggers itself is one step with a count, however often it has run.
func TestTraceOfALoop(t *testing.T) {
	cluster, rounds := tracedCluster(), 2000
	entries := []*pb.HistoryEntry{parseEntry(t, "Bob", "H bal 9 7 put x")}
	for ts := 10; ts < 10+3*rounds; ts += 3 {
		entries = append(entries, parseEntry(t, "Bob", fmt.Sprintf("A count %d %d", ts+1, ts)),
			parseEntry(t, "Bob", fmt.Sprintf("H bal %d %d put x", ts+1, ts)))
	}
	cluster.rows["Bob"] = entries
	code, stdout, stderr := runApp(t, cluster, nil, "trace", "bank", "Bob")
	if code != shell.ExitDone {
		t.Errorf("exit code %d", code)
	}
	if lines := strings.Count(stdout, "\n"); lines != 4 || !strings.Contains(stdout, "repeated 1999 times by its own effects") ||
		!strings.Contains(stderr, "a cycle: count → count") {
		t.Errorf("UNFOLDED: %d lines:\n%.2000s%s", lines, stdout, stderr)
	}
}

// TestInspectionOfSeveralObservers: a change leads to a run of each observer of its column, each
// with its own notification, and why and notify ls name the observer.
func TestInspectionOfSeveralObservers(t *testing.T) {
	cluster := tracedCluster()
	scanRecords(cluster, new(int))
	audit := &pb.ObserverInfo{
		Name: "audit", Table: 16, TableName: "bank", Column: []byte("bal"), OwnEntry: true,
	}
	cluster.catalogue.Observers = append(cluster.catalogue.Observers, audit)
	cluster.observers = append(cluster.observers, &pb.ObserverState{Info: audit, Linked: true})
	parked := &pb.HistoryEntry{
		Group: uint32(mvcc.GroupNotify), Cell: &pb.Cell{Table: 16, Row: []byte("Bob"), Class: 1, Column: []byte("audit")},
		Ts: 9, Notify: &pb.Notify{Ts: 9, Attempts: 3, ParkedTs: 11, Error: "no ink"},
	}
	cluster.rows["Bob"] = []*pb.HistoryEntry{
		parseEntry(t, "Bob", "W bal 9 7 put $2"), parseEntry(t, "Bob", "A count 12 10"), parked,
	}
	for want, args := range map[string][]string{
		"count on Bob.bal  committed": {"trace", "bank", "Bob"},
		"audit on Bob.bal  parked":    {"trace", "bank", "Bob"},
		"It was given up at 11":       {"why", "bank", "Bob", "audit"},
		"It ran at 10":                {"why", "bank", "Bob", "count"},
		"parked @ 11 after 3 runs":    {"history", "bank", "Bob"},
	} {
		code, stdout, stderr := runApp(t, cluster, nil, args...)
		if code != shell.ExitDone || !strings.Contains(stdout, want) {
			t.Errorf("%s lacks %q (exit code %d):\n%s%s", strings.Join(args, " "), want, code, stdout, stderr)
		}
	}
}
