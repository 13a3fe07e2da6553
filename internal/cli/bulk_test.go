package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// bulkRun is a repository in memory with the table t, split at m, and a directory for files.
type bulkRun struct {
	t       *testing.T
	cluster *txntest.Cluster
	table   mvcc.TableID
	dir     string
	inject  func(*pb.TabletRequest) txntest.Fault
	stdin   string
}

func newBulk(t *testing.T) *bulkRun {
	c := txntest.New()
	return &bulkRun{t: t, cluster: c, table: c.AddTable("t", "m"), dir: t.TempDir()}
}

// run runs a command line; @ in front of an argument is the directory.
func (b *bulkRun) run(args ...string) (code int, stdout, stderr string) {
	b.t.Helper()
	for i, arg := range args {
		if name, ours := strings.CutPrefix(arg, "@"); ours {
			args[i] = filepath.Join(b.dir, name)
		}
	}
	var out, errs bytes.Buffer
	app := &shell.App{
		Name: "percolator", Version: "v0.1.0", Stdin: strings.NewReader(b.stdin), Stdout: &out,
		Stderr: &errs,
		Connect: func(context.Context, []string, rpc.ClientConfig) (txn.Transport, error) {
			p := b.cluster.Process(1, 1)
			if b.inject != nil {
				p.Inject(b.inject)
			}
			return p, nil
		},
	}
	code = Run(b.t.Context(), app, args)
	return code, out.String(), errs.String()
}

// must is run that checks the exit code and the printed words.
func (b *bulkRun) must(code int, words string, args ...string) {
	b.t.Helper()
	got, stdout, stderr := b.run(args...)
	if got != code || !strings.Contains(stdout+stderr, words) {
		b.t.Fatalf("%v: exit code %d, want %d with %q\n%s%s", args, got, code, words, stdout,
			stderr)
	}
}

func (b *bulkRun) file(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// text returns a file's text; "" if it does not exist.
func (b *bulkRun) text(name string) string {
	text, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil && !os.IsNotExist(err) {
		b.t.Fatal(err)
	}
	return string(text)
}

// export returns the table's rows as lines.
func (b *bulkRun) export() string {
	b.t.Helper()
	code, stdout, stderr := b.run("export", "t", "--quiet")
	if code != shell.ExitDone {
		b.t.Fatalf("export: %s", stderr)
	}
	return stdout
}

// lines returns n rows with two columns each, in the form of export.
func lines(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `{"row":"%c%05d","columns":{"a":"%d","b":"%d"}}`+"\n", 'a'+byte(i*26/n),
			i, i, i)
	}
	return text.String()
}

// An export loads to an equal table, for any bytes.
func TestRowsRoundTrip(t *testing.T) {
	text := strings.Join([]string{
		`{"row":"\u0000","columns":{"":""}}`,
		`{"row":"a<b>&\"\\","columns":{"héllo":"wörld\n\u2028","x":{"base64":"/wA="}}}`,
		`{"row":"mix","columns":{"text":"1"},"base64_columns":{"/w8=":{"base64":"/w=="},"/w==":"2"}}`,
		`{"row":"z�","columns":{"�":"�"}}`,
		`{"row":{"base64":"/wE="},"base64_columns":{"/g==":"v"}}`,
	}, "\n") + "\n"
	b := newBulk(t)
	b.file("in", text)
	b.must(shell.ExitDone, "5 rows loaded, 0 bad", "load", "t", "@in")
	if got := b.export(); got != text {
		t.Errorf("exported\n%s\nwant\n%s", got, text)
	}
	b.must(shell.ExitDone, `"rows":5`, "export", "t", "@out", "-o", "json")
	if got := b.text("out"); got != text {
		t.Errorf("the file holds\n%s", got)
	}
	for _, left := range []string{"in.progress", "out.progress", "out.part", "out.progress.next"} {
		if b.text(left) != "" {
			t.Errorf("%s is left", left)
		}
	}
	b.must(shell.ExitFailed, "--overwrite", "export", "t", "@out")
	b.must(shell.ExitDone, "2 rows", "export", "t", "@out", "--overwrite", "--from", "a", "--before", "n")
	if got := strings.Count(b.text("out"), "\n"); got != 2 {
		t.Errorf("%d rows from a to n", got)
	}
	b.must(shell.ExitDone, `{"row":"mix","columns":{"text":"1"}}`, "export", "t", "--column", "text")
}

// null deletes, other columns stay, and of two lines of one row the later one counts, also across
// batches.
func TestLoadChangesWhatItNames(t *testing.T) {
	b := newBulk(t)
	b.stdin = `{"row":"r","columns":{"a":"1","b":"2","c":"3"}}` + "\n"
	b.must(shell.ExitDone, "1 rows loaded", "load", "t")
	var text strings.Builder
	for i := range 300 {
		fmt.Fprintf(&text, `{"row":"r","columns":{"a":"%d"}}`+"\r\n\n", i)
	}
	b.stdin = text.String() + `{"row":"r","columns":{"b":null}}`
	b.must(shell.ExitDone, "301 rows loaded", "load", "t", "-", "--batch", "3", "--workers", "8")
	if got, want := b.export(), `{"row":"r","columns":{"a":"299","c":"3"}}`+"\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestBadLines(t *testing.T) {
	for line, says := range map[string]string{
		`{"row":"r"}`:                                                   "no columns",
		`{"columns":{"a":"1"}}`:                                         `no "row"`,
		`{"row":null,"columns":{"a":"1"}}`:                              `no "row"`,
		`{"row":"r","colums":{"a":"1"}}`:                                "colums",
		`{"row":"r","columns":{"a":true}}`:                              `neither "text"`,
		`{"row":"r","columns":{"a":{}}}`:                                `neither "text"`,
		`{"row":"r","columns":{"a":{"base46":"x"}}}`:                    `neither "text"`,
		`{"row":"r","columns":{"a":{"base64":"?"}}}`:                    `neither "text"`,
		`{"row":"r","columns":{"a":"\ud800"}}`:                          "surrogate",
		"{\"row\":\"\xff\",\"columns\":{\"a\":\"\"}}":                   "not UTF-8",
		`{"row":"r","base64_columns":{"?":"1"}}`:                        "not base64",
		`{"row":"r","columns":{"a":"1"}} {}`:                            "more follows",
		`{"row":"r","columns":{"a":"1"}`:                                "unexpected EOF",
		`not json`:                                                      "invalid character",
		`{"row":"r","row":"s","columns":{"a":"1"}}`:                     `row occurs twice`,
		`{"row":"r","columns":{"a":"1","b":"2","a":"3"}}`:               `a occurs twice`,
		`{"row":"r","columns":{"a":"1"},"columns":{"b":"1"}}`:           `columns occurs twice`,
		`{"row":"r","columns":{"a":{"base64":"YQ==","base64":"Yg=="}}}`: `occurs twice`,
		`{"row":"r","columns":{"a":"1"},"base64_columns":{"YQ==":"2"}}`: `a occurs twice`,
		`{"Row":"r","columns":{"a":"1"}}`:                               `unknown name Row`,
		`[]`:                                                            "`jq -c '.[]' FILE`",
		`[{"row":"r","columns":{"a":"1"}}`:                              "`jq -c '.[]' FILE`",
		`{`:                                                             "`jq -c . FILE`",
		`  {"row": "r",`:                                                "`jq -c . FILE`",
		`"x"`:                                                           `not an object`,
		`{"row":"` + strings.Repeat("x", 5000) +
			`","columns":{"a":"1"}}`: "row of 5000 bytes",
		`{"row":"r","columns":{"` + strings.Repeat("x", 2000) +
			`":"1"}}`: "column of 2000 bytes",
		`{"row":"r","columns":{"a":"` + strings.Repeat("x", 4<<20+1) +
			`"}}`: "4194305 bytes exceeds the limit",
		`{"row":"r","columns":{"a":"` + strings.Repeat("x", 5<<20) + `"}}` +
			"\x01": "over --max-line",
	} {
		b := newBulk(t)
		b.file("in", `{"row":"first","columns":{"a":"1"}}`+"\n"+line+"\n"+
			`{"row":"last","columns":{"a":"1"}}`+"\n")
		args := []string{"load", "t", "@in", "--max-line", fmt.Sprint(5 << 20)}
		b.must(shell.ExitFailed, says, append([]string{}, append(args, "--dry-run")...)...)
		if b.cluster.Operations() != 0 {
			t.Error("--dry-run asked the repository")
		}
		code, _, stderr := b.run(args...)
		if code != shell.ExitFailed || !strings.Contains(stderr, "line 2: bad line: ") ||
			!strings.Contains(stderr, says) || !strings.Contains(stderr, "next: ") {
			t.Errorf("%.80s: exit code %d, %s", line, code, stderr)
		}
		if got := b.export(); got != `{"row":"first","columns":{"a":"1"}}`+"\n" {
			t.Errorf("%.80s: a load that stops at line 2 leaves\n%s", line, got)
		}
		b.must(shell.ExitDone, "resuming after line 1", append(args, "--skip-bad", "1")...)
		if got := b.export(); strings.Count(got, "\n") != 2 {
			t.Errorf("%.80s: passed over, there is\n%s", line, got)
		}
	}
}

// TestNothingToResume: a load whose first line is invalid has nothing to resume.
func TestNothingToResume(t *testing.T) {
	b := newBulk(t)
	b.file("in", "x\n")
	b.must(shell.ExitFailed, "line 1: bad line: ", "load", "t", "@in")
	if code, stdout, stderr := b.run("load", "t", "@in", "--skip-bad", "1"); code != shell.ExitDone ||
		strings.Contains(stdout+stderr, "resuming") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}

// TestByteOrderMark: a mark at the beginning of the file is skipped, also by a resumed load;
// elsewhere it is an error.
func TestByteOrderMark(t *testing.T) {
	const mark, line = "\ufeff", `{"row":"r","columns":{"a":"1"}}` + "\n"
	b := newBulk(t)
	b.file("in", mark+line+mark+line)
	b.must(shell.ExitFailed, "line 2: bad line: ", "load", "t", "@in")
	b.must(shell.ExitDone, "resuming after line 1", "load", "t", "@in", "--skip-bad", "1")
	if got := b.export(); got != line {
		t.Errorf("loaded %s", got)
	}
}

// Errors found only by the repository are reported by row too: here, a weak column.
func TestRowsTheRepositoryRefuses(t *testing.T) {
	b := newBulk(t)
	b.cluster.Observe(b.table, "bell", mvcc.ObservedWeak)
	text := strings.Replace(lines(100), `{"a":"41","b":"41"}`, `{"bell":"x"}`, 1)
	b.file("in", text)
	b.must(shell.ExitFailed, "line 42: ", "load", "t", "@in", "--batch", "30")
	b.must(shell.ExitDone, `"rows":99,"bytes":`+fmt.Sprint(len(text))+`,"skipped":1`, "load", "t", "@in",
		"--batch", "30", "--skip-bad", "1", "-o", "json")
	if got := strings.Count(b.export(), "\n"); got != 99 {
		t.Errorf("%d rows", got)
	}
}

// A load that failed resumes at its progress, whatever was committed behind it.
func TestLoadGoesOn(t *testing.T) {
	b := newBulk(t)
	text := lines(2000)
	b.file("in", text)
	var writes, from atomic.Int64
	b.inject = func(req *pb.TabletRequest) txntest.Fault {
		if w := req.GetOnePhase(); w != nil && writes.Add(1) > 40 && writes.Load()%3 == 0 {
			return txntest.Fault{
				Answer: &pb.Error{Code: pb.Error_CODE_PERMISSION, Message: "not now"},
			}
		}
		return txntest.Fault{}
	}
	for round := 0; ; round++ {
		writes.Store(0)
		code, _, stderr := b.run("load", "t", "@in", "--batch", "10", "--checkpoint", "0s")
		if code == shell.ExitDone {
			break
		}
		var state struct{ Line, Offset int64 }
		if err := json.Unmarshal([]byte(b.text("in.progress")), &state); err != nil {
			t.Fatalf("round %d: %v\n%s", round, err, stderr)
		}
		if !strings.Contains(stderr, fmt.Sprintf("resumes after line %d", state.Line)) ||
			state.Line < from.Load() {
			t.Fatalf("round %d: line %d after %d\n%s", round, state.Line, from.Load(), stderr)
		}
		from.Store(state.Line)
		// All rows counted in the file are stored.
		if got := b.export(); !containsAll(got, text[:state.Offset]) {
			t.Fatalf("round %d: not all of the first %d lines are there", round, state.Line)
		}
		if round == 5 {
			b.inject = nil
		}
	}
	if from.Load() == 0 {
		t.Error("no round has got anywhere")
	}
	if got := b.export(); got != text {
		t.Error("the table is not the file")
	}
}

func containsAll(text, wanted string) bool {
	have := map[string]bool{}
	for line := range strings.Lines(text) {
		have[line] = true
	}
	for line := range strings.Lines(wanted) {
		if !have[line] {
			return false
		}
	}
	return true
}

// A progress file is used only for the file, table and cluster that it was written for.
func TestProgressOfSomethingElse(t *testing.T) {
	b := newBulk(t)
	b.cluster.AddTable("u")
	text := lines(50)
	b.file("in", text+"bad\n")
	b.must(shell.ExitFailed, "line 51", "load", "t", "@in")
	b.must(shell.ExitFailed, "into another table", "load", "u", "@in")
	b.file("in", strings.Replace(text, "a00000", "a0000x", 1)+"bad\n")
	b.must(shell.ExitFailed, "does not fit the file", "load", "t", "@in")
	b.file("in", text[:100])
	b.must(shell.ExitFailed, "--restart", "load", "t", "@in")
	b.file("in", text+lines(1))
	b.must(shell.ExitDone, "resuming after line 50", "load", "t", "@in") // it has only grown
	b.file("in.progress", "{")
	b.must(shell.ExitFailed, "--restart starts over", "load", "t", "@in")
	b.must(shell.ExitDone, "51 rows loaded", "load", "t", "@in", "--restart")
	if b.text("in.progress") != "" {
		t.Error("a whole load leaves its progress file")
	}
}

// A failed export resumes at the same snapshot: later writes are not in it.
func TestExportGoesOn(t *testing.T) {
	b := newBulk(t)
	text := lines(3000)
	b.file("in", text)
	b.must(shell.ExitDone, "", "load", "t", "@in")
	var scans atomic.Int64
	b.inject = func(req *pb.TabletRequest) txntest.Fault {
		if req.GetScan() != nil && scans.Add(1) == 2 { // the second tablet
			return txntest.Fault{
				Answer: &pb.Error{Code: pb.Error_CODE_PERMISSION, Message: "not now"},
			}
		}
		return txntest.Fault{}
	}
	b.must(shell.ExitFailed, "not now", "export", "t", "@out")
	if b.text("out") != "" || b.text("out.part") == "" {
		t.Fatal("FILE is there before it is whole")
	}
	b.stdin = `{"row":"x","columns":{"new":"1"}}`
	b.must(shell.ExitDone, "", "load", "t", "-")
	// Data not counted in the progress is truncated: half a line after a kill.
	b.file("out.part", b.text("out.part")+`{"row":"z`)
	b.must(shell.ExitFailed, "to another export", "export", "t", "@out", "--prefix", "a")
	b.must(shell.ExitUsage, "--at", "export", "t", "@out", "--at", "1h")
	b.must(shell.ExitDone, "resuming after", "export", "t", "@out")
	if b.text("out") != text {
		t.Error("the file is not the first snapshot")
	}
	if b.text("out.part")+b.text("out.progress") != "" {
		t.Error("something is left")
	}
}

// TestExportEndsTwice: a crash after the last row leaves a complete FILE.part, which the next run
// renames; after a crash between the removal of the progress and the rename it starts over. An
// older build marked such a progress as done.
func TestExportEndsTwice(t *testing.T) {
	b := newBulk(t)
	b.stdin = lines(3)
	b.must(shell.ExitDone, "", "load", "t")
	status, err := b.cluster.Process(1, 1).NodeStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	progress, err := json.Marshal(map[string]any{
		"version": 1, "cluster": status.GetClusterId(), "table": "t", "table_id": b.table,
		"ts": b.cluster.Timestamps(1), "row": "z00002", "rows": 3, "bytes": len(lines(3)), "done": true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, counted := range []bool{true, false} {
		b.file("out.part", lines(3))
		if counted {
			b.file("out.progress", string(progress))
		}
		b.must(shell.ExitDone, `"rows":3`, "export", "t", "@out", "-o", "json", "--overwrite")
		if b.text("out") != lines(3) || b.text("out.progress")+b.text("out.part") != "" {
			t.Errorf("counted %v: not finished", counted)
		}
	}
}

func TestExportOfASnapshotThatIsGone(t *testing.T) {
	b := newBulk(t)
	b.stdin = lines(10)
	b.must(shell.ExitDone, "", "load", "t")
	b.inject = func(req *pb.TabletRequest) txntest.Fault {
		if req.GetScan() != nil {
			return txntest.Fault{
				Answer: &pb.Error{Code: pb.Error_CODE_PERMISSION, Message: "not now"},
			}
		}
		return txntest.Fault{}
	}
	b.must(shell.ExitFailed, "not now", "export", "t", "@out")
	b.inject = nil
	b.cluster.SetBound(b.cluster.Timestamps(1))
	b.must(shell.ExitFailed, "--restart starts a new one", "export", "t", "@out")
	b.must(shell.ExitDone, "10 rows", "export", "t", "@out", "--restart")
	if b.text("out") != lines(10) {
		t.Error("the file is not the table")
	}
}
