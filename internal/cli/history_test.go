package cli

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// TestHistory lays out rows that testdata/history describes, one entry a line:
//
//	W column commit start put|delete|long [value]    newest write record (H: an older one)
//	D column start value
//	L column start primaryRow.primaryColumn put|delete|lock|long [value]
//	K column commit start lock                       newest committed lock without a write
//	R column start
//	N column ts [attempts parked error…]
//	I column start primaryRow.primaryColumn
//	A observer commit start                          acknowledgment (AL: locked by the transaction start)
//	AR observer start                                a run that was rolled back
//
// Columns are Go string literals' contents. `go test ./internal/cli -run TestHistory
// -rewrite` writes the results anew.
func TestHistory(t *testing.T) {
	datadriven.RunTest(t, "testdata/history", func(t *testing.T, d *datadriven.TestData) string {
		args := []string{"history"}
		row, extra := "Bob", ""
		d.MaybeScanArgs(t, "row", &row)
		args = append(args, "bank", row)
		if d.HasArg("flags") {
			d.ScanArgs(t, "flags", &extra)
			args = append(args, strings.Split(extra, "|")...)
		}
		cluster := bankCluster()
		if d.Cmd == "unobserved" {
			cluster.catalogue = &pb.Catalogue{}
		}
		for line := range strings.Lines(d.Input) {
			cluster.history = append(cluster.history,
				parseEntry(t, row, strings.TrimSuffix(line, "\n")))
		}
		code, stdout, stderr := runApp(t, cluster, nil, args...)
		if code != shell.ExitDone {
			return fmt.Sprintf("exit code %d\n%s", code, stderr)
		}
		return stdout + stderr
	})
}

// TestHistoryOfALongRow: output cut by the limit, or by a tablet's maximum, says so.
func TestHistoryOfALongRow(t *testing.T) {
	cluster := bankCluster()
	for i := range mvcc.MaxHistory + 10 {
		cluster.history = append(cluster.history,
			parseEntry(t, "Bob", fmt.Sprintf("R bal %d", i+1)))
	}
	for _, tc := range []struct {
		limit, shown int
		says         string
	}{
		{100, 100, "percolator: the first 100; --limit shows more\n"},
		{mvcc.MaxHistory, mvcc.MaxHistory, "the first 4096; --limit shows more"},
		{mvcc.MaxHistory + 5, mvcc.MaxHistory + 1, "the row may have more entries"},
	} {
		code, stdout, stderr := runApp(t, cluster, nil, "history", "bank", "Bob", "-o", "json",
			"--limit", fmt.Sprint(tc.limit))
		if shown := strings.Count(stdout, "\n"); code != shell.ExitDone || shown != tc.shown ||
			!strings.Contains(stderr, tc.says) {
			t.Errorf("--limit %d: exit code %d, %d entries, %q", tc.limit, code, shown, stderr)
		}
	}
	cluster.history = cluster.history[:mvcc.MaxHistory]
	if _, _, stderr := runApp(t, cluster, nil, "history", "bank", "Bob", "-o", "json", "--limit",
		"9999"); stderr != "" {
		t.Errorf("all are shown: %q", stderr)
	}
	cluster.history = []*pb.HistoryEntry{
		{Group: uint32(mvcc.GroupData), Cell: &pb.Cell{Table: 16, Row: []byte("Bob")},
			Value: make([]byte, mvcc.HistoryBytes)},
	}
	_, _, stderr := runApp(t, cluster, nil, "history", "bank", "Bob")
	if !strings.Contains(stderr, "the row may have more entries") {
		t.Errorf("as many bytes as a tablet answers: %q", stderr)
	}
}

func parseEntry(t *testing.T, row, line string) *pb.HistoryEntry {
	t.Helper()
	f := strings.SplitN(line, " ", 6)
	for len(f) < 6 {
		f = append(f, "")
	}
	number := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		return n
	}
	kind := func(s string) pb.Kind {
		switch s {
		case "delete":
			return pb.Kind_KIND_DELETE
		case "lock":
			return pb.Kind_KIND_LOCK
		}
		return pb.Kind_KIND_PUT
	}
	primary := func(s string) *pb.Cell {
		r, c, _ := strings.Cut(s, ".")
		return &pb.Cell{Table: 16, Row: []byte(r), Column: []byte(c)}
	}
	column, err := shell.Unescape(shell.EscapeGo, f[1])
	if err != nil {
		t.Fatal(err)
	}
	worker := &pb.Worker{Node: 1, Incarnation: 3}
	e := &pb.HistoryEntry{
		Cell: &pb.Cell{Table: 16, Row: []byte(row), Column: []byte(column)}, Group: uint32(f[0][0]),
	}
	switch f[0] {
	case "W", "H", "K":
		e.Write = &pb.Write{
			CommitTs: number(f[2]), StartTs: number(f[3]), Kind: kind(f[4]), Long: f[4] == "long",
			Value: []byte(f[5]),
		}
	case "D":
		e.Ts, e.Value = number(f[2]), []byte(f[3])
	case "L":
		e.Lock = &pb.Lock{StartTs: number(f[2]), Primary: primary(f[3]), Kind: kind(f[4]),
			Long: f[4] == "long", Value: []byte(f[5]),
			Expiry: number(f[2]) + 100, Worker: worker}
	case "R":
		e.Ts = number(f[2])
	case "N":
		e.Notify = &pb.Notify{Ts: number(f[2]), Error: f[5]}
		if f[3] != "" {
			e.Notify.Attempts, e.Notify.ParkedTs = uint32(number(f[3])), number(f[4])
		}
	case "I":
		e.Ts, e.Intent = number(f[2]), &pb.Intent{
			Primary: primary(f[3]), Expiry: number(f[2]) + 100,
		}
	case "A":
		e.Group, e.Cell.Class = uint32(mvcc.GroupWrite), uint32(mvcc.ClassAck)
		e.Write = &pb.Write{
			CommitTs: number(f[2]), StartTs: number(f[3]), Kind: pb.Kind_KIND_PUT,
			Value: []byte("........"),
		}
	case "AL":
		e.Group, e.Cell.Class = uint32(mvcc.GroupLock), uint32(mvcc.ClassAck)
		e.Lock = &pb.Lock{
			StartTs: number(f[2]), Primary: primary(f[3]), Kind: pb.Kind_KIND_PUT,
			Expiry: number(f[2]) + 100, Worker: worker,
		}
	case "AR":
		e.Group, e.Cell.Class = uint32(mvcc.GroupRollback), uint32(mvcc.ClassAck)
		e.Ts = number(f[2])
	default:
		t.Fatalf("unknown entry %q", line)
	}
	return e
}
