package nodecmd

import (
	"encoding/json"
	"fmt"
	"io"
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

// TestAuditLogHasAFile: each audited call, and nothing else, has a line of JSON in the file, which
// only its owner may read; also after the file was renamed, and behind half a line left by a killed
// process. The log still has the lines.
func TestAuditLogHasAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.json")
	file, err := openAudit(path)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	logger := slog.New(auditTee{slog.NewTextHandler(&log, nil), file}).With("node", 1)
	act := func(method string) { logger.Info(rpc.AuditMessage, "method", method, "outcome", "done") }
	methods := func(path string) (out []any) {
		for _, l := range auditLines(t, path) {
			if out = append(out, l["method"]); l["torn"] != nil {
				out[len(out)-1] = "torn"
			}
		}
		return out
	}
	logger.Info("something else", "outcome", "done")
	act("a")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	act("b")
	// The next time there is already a new file, created by logrotate's `create`.
	if err := os.Rename(path, path+".2"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	act("c")
	if err := file.close(); err != nil {
		t.Fatal(err)
	}
	torn, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(torn, "{\"method\":")
	if err != nil || torn.Close() != nil {
		t.Fatal(err)
	}
	if file, err = openAudit(path); err != nil {
		t.Fatal(err)
	}
	logger = slog.New(auditTee{logger.Handler().(auditTee).Handler, file})
	act("d")
	// Rotation puts a torn file in the place of a whole one, and then nothing in that of a torn one.
	if err := os.Rename(path, path+".3"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("{\"method\":"), 0o600); err != nil {
		t.Fatal(err)
	}
	act("f")
	if got := methods(path); !slices.Equal(got, []any{"torn", "f"}) {
		t.Errorf("UNAUDITED: behind half a line after a rotation: %v", got)
	}
	file.torn = true // as after a write that failed half-way
	if err := os.Rename(path, path+".4"); err != nil {
		t.Fatal(err)
	}
	act("g")
	if got := methods(path); !slices.Equal(got, []any{"g"}) {
		t.Errorf("in an empty file after a torn one: %v", got)
	}
	if err := os.Rename(path+".3", path); err != nil {
		t.Fatal(err)
	}
	if got := methods(path + ".1"); !slices.Equal(got, []any{"a"}) {
		t.Errorf("moved away: %v", got)
	}
	if got := methods(path + ".2"); !slices.Equal(got, []any{"b"}) {
		t.Errorf("replaced: %v", got)
	}
	if got := methods(path); !slices.Equal(got, []any{"c", "torn", "d"}) {
		t.Errorf("UNAUDITED: %v", got)
	}
	if n := strings.Count(log.String(), "msg=audit node=1"); n != 6 {
		t.Errorf("%d lines in the log: %s", n, log.String())
	}
	// The file has become unwritable: the log says so and has the line.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	act("e")
	if got := log.String(); !strings.Contains(got, "cannot write the audit log") || !strings.Contains(got, "method=e") {
		t.Error(got)
	}
	if _, err := openAudit(path); err == nil {
		t.Error("a directory was opened")
	}
	if err := file.close(); err != nil {
		t.Error(err)
	}
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
