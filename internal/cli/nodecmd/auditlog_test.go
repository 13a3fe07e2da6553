package nodecmd

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/rpc"
)

// auditLines returns the lines of an audit log's file, each as JSON.
func auditLines(t *testing.T, path string) (lines []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			fields = map[string]any{"torn": line}
		}
		lines = append(lines, fields)
	}
	return lines
}

// audited is an audit log with its file, and the node's log beside it.
type audited struct {
	t    *testing.T
	path string
	file *auditFile
	log  *strings.Builder
}

func newAudited(t *testing.T) *audited {
	t.Helper()
	a := &audited{t: t, path: filepath.Join(t.TempDir(), "audit.json"), log: new(strings.Builder)}
	a.open()
	return a
}

// open opens the file, as a process does that begins.
func (a *audited) open() {
	a.t.Helper()
	file, err := openAudit(a.path)
	if err != nil {
		a.t.Fatal(err)
	}
	a.file = file
}

// logger returns the logger of the node's process.
func (a *audited) logger() *slog.Logger {
	return slog.New(auditTee{slog.NewTextHandler(a.log, nil), a.file}).With("node", 1)
}

// act logs a call of the method.
func (a *audited) act(method string) {
	a.logger().Info(rpc.AuditMessage, "method", method, "outcome", "done")
}

// rotate renames the file; then, if text is not nil, there is a new one with the text.
func (a *audited) rotate(to string, text []byte) {
	a.t.Helper()
	if err := os.Rename(a.path, a.path+to); err != nil {
		a.t.Fatal(err)
	}
	if text != nil {
		if err := os.WriteFile(a.path, text, 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

// expect checks the methods in the file with the suffix; "torn" stands for a line that is not JSON.
func (a *audited) expect(suffix string, want ...any) {
	a.t.Helper()
	var got []any
	for _, l := range auditLines(a.t, a.path+suffix) {
		if got = append(got, l["method"]); l["torn"] != nil {
			got[len(got)-1] = "torn"
		}
	}
	if !slices.Equal(got, want) {
		a.t.Errorf("UNAUDITED: the file %q has %v, want %v", suffix, got, want)
	}
}

func (a *audited) close() {
	a.t.Helper()
	if err := a.file.close(); err != nil {
		a.t.Fatal(err)
	}
}

// halfALine is what a killed process leaves.
var halfALine = []byte("{\"method\":")

// TestAuditLogHasAFile: each audited call, and nothing else, has a line of JSON in the file, which
// only its owner may read; also after the file was renamed, and behind half a line left by a killed
// process. The log still has the lines.
func TestAuditLogHasAFile(t *testing.T) {
	a := newAudited(t)
	a.logger().Info("something else", "outcome", "done")
	a.act("a")
	if info, err := os.Stat(a.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	a.rotate(".1", nil)
	a.act("b")
	a.rotate(".2", []byte{}) // as logrotate's `create`
	a.act("c")
	a.close()
	torn, err := os.OpenFile(a.path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = torn.Write(halfALine)
	if err != nil || torn.Close() != nil {
		t.Fatal(err)
	}
	a.open()
	a.act("d")
	a.expect(".1", "a")
	a.expect(".2", "b")
	a.expect("", "c", "torn", "d")
	if n := strings.Count(a.log.String(), "msg=audit node=1"); n != 4 {
		t.Errorf("%d lines in the log: %s", n, a.log)
	}
	a.close()
}

// TestAuditLogAfterRotations: rotation puts a torn file in the place of a whole one, and then nothing in
// that of a torn one; the next line is whole in both.
func TestAuditLogAfterRotations(t *testing.T) {
	a := newAudited(t)
	a.act("a")
	a.rotate(".1", halfALine)
	a.act("b")
	a.expect("", "torn", "b")
	a.file.torn = true // as after a write that failed half-way
	a.rotate(".2", nil)
	a.act("c")
	a.expect("", "c")
	a.close()
}

// TestAuditLogUnwritable: if the file has become unwritable, the log says so and has the line.
func TestAuditLogUnwritable(t *testing.T) {
	a := newAudited(t)
	if err := os.Remove(a.path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(a.path, 0o700); err != nil {
		t.Fatal(err)
	}
	a.act("a")
	if got := a.log.String(); !strings.Contains(got, "cannot write the audit log") || !strings.Contains(got, "method=a") {
		t.Error(got)
	}
	if _, err := openAudit(a.path); err == nil {
		t.Error("a directory was opened")
	}
	a.close()
}

// TestRefusedActsAreBounded: refused calls neither fill the disk nor displace executed ones; the
// next line has the number of omitted ones.
func TestRefusedActsAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.json")
	file, err := openAudit(path)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_000_000, 0)
	act := func(outcome string) {
		r := slog.NewRecord(at, slog.LevelInfo, rpc.AuditMessage, 0)
		r.AddAttrs(slog.String("outcome", outcome))
		if err := file.write(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for range maxRefusedLines + 7 {
		act("refused")
	}
	if n := len(auditLines(t, path)); n != maxRefusedLines {
		t.Errorf("%d lines", n)
	}
	act("done")
	at = at.Add(time.Second)
	act("refused")
	lines := auditLines(t, path)
	last := lines[len(lines)-2:]
	if len(lines) != maxRefusedLines+2 || fmt.Sprint(last[0]["refusals_unwritten"], last[1]["refusals_unwritten"]) != "7 <nil>" {
		t.Errorf("%v", last)
	}
	if err := file.close(); err != nil {
		t.Error(err)
	}
}
