package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestOpenLoopShowsAStall: calls that are due while another one stalls have latencies from the time
// at which they were due.
func TestOpenLoopShowsAStall(t *testing.T) {
	const stall = 200 * time.Millisecond
	var mu sync.Mutex
	l, err := OpenLoop(t.Context(), 1000, 400*time.Millisecond, 1000, func(_ context.Context, i int) error {
		mu.Lock()
		defer mu.Unlock()
		if i == 100 {
			<-time.After(stall)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// Half of the calls are due during the stall, and wait for 100 ms on average.
	if n := l.Count(); n != 400 || l.At(1) < stall || l.At(0.75) < stall/4 {
		t.Errorf("%d calls, p75 %v, longest %v", n, l.At(0.75), l.At(1))
	}
	if l.Rate < 100 || l.Rate > 1000 {
		t.Errorf("a rate of %v", l.Rate)
	}
}

// TestOpenLoopReportsItsLimit: with too few goroutines the latencies include the time for which a
// call waited to begin, and the loop ends in time with an error.
func TestOpenLoopReportsItsLimit(t *testing.T) {
	const d = 200 * time.Millisecond
	began := time.Now()
	l, err := OpenLoop(t.Context(), 1000, d, 1, func(context.Context, int) error {
		<-time.After(20 * time.Millisecond)
		return nil
	})
	if !errors.Is(err, ErrLoad) {
		t.Fatalf("%v", err)
	}
	if n := l.Count(); n < 1 || n > 20 || l.At(1) < d/4 || time.Since(began) > time.Minute {
		t.Errorf("%d calls, longest %v, after %v", n, l.At(1), time.Since(began))
	}
}

// TestOpenLoopStopsAtAnError: an error of a call ends the loop.
func TestOpenLoopStopsAtAnError(t *testing.T) {
	failed := errors.New("failed")
	if _, err := OpenLoop(t.Context(), 1000, time.Hour, 2, func(_ context.Context, i int) error {
		if i == 3 {
			return failed
		}
		return nil
	}); !errors.Is(err, failed) {
		t.Error(err)
	}
}

// TestOpenLoopLeavesChildren: child processes that end with their parent survive a loop, whichever
// thread has started them.
func TestOpenLoopLeavesChildren(t *testing.T) {
	var children []*exec.Cmd
	for range 20 {
		child := exec.CommandContext(t.Context(), "sleep", "60")
		child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGINT}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		children = append(children, child)
		if _, err := OpenLoop(t.Context(), 1000, 5*time.Millisecond, 10, func(context.Context, int) error {
			return nil
		}); err != nil && !errors.Is(err, ErrLoad) {
			t.Fatal(err)
		}
	}
	for _, child := range children {
		_ = child.Process.Signal(syscall.SIGTERM)
		err := child.Wait()
		if status, ok := child.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
			t.Errorf("a child ended by %v", err)
		}
	}
}

// measured records a bit of everything.
func measured(_ context.Context, r *Run) error {
	for i := range 3 {
		r.Value("transactions", "one-phase", "/s", float64(10000*(i+1)))
		r.Value("transactions", "one-phase", "ms p50", 0.25)
		r.Ratio("transactions", "one-phase", 0.8+float64(i)/10, "≥ 0.8")
		for _, callers := range []float64{512, 1, 64} {
			r.Point("callers", "one-phase", callers, callers*float64(i+1))
		}
	}
	r.Point("callers", "a single point", 1, 5)
	r.Point("callers", "not on a logarithmic axis", 0, -1)
	r.Axes("callers", "callers", "transactions/s", true, true)
	r.Paper("transactions", "one-phase", "0.23")
	r.Note("Values have %d bytes.", 100)
	r.Note("Values have %d bytes.", 100)
	return nil
}

func run(t *testing.T, m Measurement, o Options) error {
	t.Helper()
	if o.Print == nil {
		o.Print = io.Discard
	}
	return Execute(t.Context(), m, &Run{Rounds: 3, Dir: t.TempDir(), Log: io.Discard}, o)
}

// TestResults: results are printed, written as JSON with every repetition, and drawn.
func TestResults(t *testing.T) {
	var out bytes.Buffer
	dir := t.TempDir()
	if err := run(t, Measurement{Name: "m", Title: "Title", Run: measured},
		Options{Out: dir, Command: []string{"go", "run", "."}, Print: &out}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"20,000 (10,000–30,000)", "0.25", "0.90 (0.80–1)", "≥ 0.8", "0.23", "Values have 100 bytes."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
	if n := strings.Count(out.String(), "Values have"); n != 1 {
		t.Errorf("%d notes", n)
	}
	text, err := os.ReadFile(filepath.Join(dir, "m.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r Result
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if got := r.Tables[0].Rows[0].Values["/s"]; len(got) != 3 || r.Machine.CPUs == 0 || r.Machine.Memory == 0 ||
		r.Machine.Kernel == "" || r.Machine.Fsync == 0 || len(r.Command) != 3 || r.Rounds != 3 {
		t.Errorf("%s", text)
	}
	svg, err := os.ReadFile(filepath.Join(dir, "m-callers.svg"))
	if err != nil || !bytes.Contains(svg, []byte("</svg>")) || !bytes.Contains(svg, []byte("transactions/s")) {
		t.Errorf("%v, %.200s", err, svg)
	}
}

// TestSmokeWithoutPoints: a small run may leave a plot empty; a full one may not.
func TestSmokeWithoutPoints(t *testing.T) {
	m := Measurement{Name: "m", Run: func(_ context.Context, r *Run) error {
		r.Axes("empty", "x", "y", false, false)
		return nil
	}}
	for _, smoke := range []bool{true, false} {
		err := Execute(t.Context(), m, &Run{Smoke: smoke, Dir: t.TempDir()}, Options{Out: t.TempDir(), Print: io.Discard})
		if smoke != (err == nil) {
			t.Errorf("smoke %v: %v", smoke, err)
		}
	}
}

// TestDocument: each result replaces the section between its markers, and no other.
func TestDocument(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	const page = "before\n<!-- m -->\nold\n<!-- /m -->\nbetween\n<!-- other -->\nother\n<!-- /other -->\n"
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	m := Measurement{Name: "m", Title: "Title", Run: measured}
	o := Options{Out: t.TempDir(), Docs: file, Plots: "plots"}
	for range 2 {
		if err := run(t, m, o); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	for _, want := range []string{
		"before\n<!-- m -->\n| transactions | /s | ms p50 | ratio | aim | paper |\n|---|---|---|---|---|---|\n| one-phase | 20,000",
		"(plots/m-callers.svg)", "\n<!-- /m -->\nbetween\n<!-- other -->\nother\n<!-- /other -->\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "old") || strings.Count(got, "| one-phase |") != 1 {
		t.Errorf("%s", got)
	}
	m.Name = "unknown"
	if err := run(t, m, o); err == nil || !strings.Contains(err.Error(), "<!-- unknown -->") {
		t.Errorf("without markers: %v", err)
	}
}

// TestFailedMeasurement: the values measured before a failure are kept, and the measurement's
// section in the document is left unchanged.
func TestFailedMeasurement(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	const page = "<!-- m -->\nold\n<!-- /m -->\n"
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func() error{
		"wrong result": func() error { return errors.New("wrong result") },
		"panic":        func() error { panic("panic") },
	} {
		dir := t.TempDir()
		err := run(t, Measurement{Name: "m", Run: func(ctx context.Context, r *Run) error {
			_ = measured(ctx, r)
			return end()
		}}, Options{Out: dir, Docs: file})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "m.json"))
		if err != nil || !bytes.Contains(text, []byte(name)) || !bytes.Contains(text, []byte("20000")) {
			t.Errorf("%s: %v, %s", name, err, text)
		}
		if text, err := os.ReadFile(file); err != nil || string(text) != page {
			t.Errorf("%s: %v, %s", name, err, text)
		}
	}
}

// TestUsage: processor time grows, and so does the device's counter after a sync.
func TestUsage(t *testing.T) {
	const tick = 10 * time.Millisecond // the resolution of /proc
	began := CPUOf()
	for CPUOf()-began < 3*tick { // consumes processor time
	}
	if of := CPUOf(os.Getpid(), 1<<22+1); of < 2*tick {
		t.Errorf("%v by /proc", of)
	}
	dir := t.TempDir()
	before, err := DeviceBytes(dir)
	if err != nil {
		t.Logf("the folder is not on a block device: %v", err)
		return
	}
	if fsyncMillis(dir) == 0 {
		t.Error("no syncs")
	}
	if after, err := DeviceBytes(dir); err != nil || after <= before {
		t.Errorf("%d bytes written, %v", after-before, err)
	}
}

func TestFormat(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.00123: "0.0012", 0.5: "0.50", 1: "1", 1.234: "1.23", 99.96: "100", 12.34: "12.3", 1234.4: "1234",
		-2.5: "-2.50", 9999.6: "10,000", 1234567: "1,234,567",
	} {
		if got := format(v); got != want {
			t.Errorf("format(%v) = %q, want %q", v, got, want)
		}
	}
}
