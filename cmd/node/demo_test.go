package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// demonstration is a running demo. lines ends with it.
type demonstration struct {
	t     *testing.T
	cmd   *exec.Cmd
	keys  io.WriteCloser
	lines chan string
	dir   string // of temporary files
}

// demonstrate starts the demo without a terminal.
func demonstrate(t *testing.T) *demonstration {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "percolator") // the name selects the program of the test binary
	if err := os.Symlink(self, name); err != nil {
		t.Fatal(err)
	}
	d := &demonstration{t: t, lines: make(chan string, 1000), dir: filepath.Join(dir, "tmp")}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d.cmd = exec.Command(name, "demo", "--nodes", "3", "--pages", "30")
	d.cmd.Env = append(os.Environ(), "TMPDIR="+d.dir)
	d.cmd.Stderr = os.Stderr
	out, err := d.cmd.StdoutPipe()
	if err == nil {
		d.keys, err = d.cmd.StdinPipe()
	}
	if err == nil {
		err = d.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.cmd.Process.Kill() }) // it has ended, unless the test failed
	go func() {                                    // ends with the demo
		defer close(d.lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			d.lines <- scan.Text()
		}
	}()
	return d
}

// await returns the pattern's first group in a later line.
func (d *demonstration) await(pattern string) string {
	d.t.Helper()
	wanted := regexp.MustCompile(pattern)
	late := time.After(2 * time.Minute)
	for {
		select {
		case line, more := <-d.lines:
			if !more {
				d.t.Fatalf("it ended before %s", pattern)
			}
			if m := wanted.FindStringSubmatch(line); m != nil {
				return m[len(m)-1]
			}
		case <-late:
			d.t.Fatalf("%s did not come", pattern)
		}
	}
}

func (d *demonstration) press(keys string) {
	d.t.Helper()
	if _, err := io.WriteString(d.keys, keys); err != nil {
		d.t.Fatal(err)
	}
}

// TestDemo: pages are loaded and indexed while keys kill, pause and add nodes; q ends the demo
// without leaving anything.
func TestDemo(t *testing.T) {
	d := demonstrate(t)
	page := d.await(`^search +(http://[^/]+/)`)
	d.press("2k")
	d.await(`node 2 killed`)
	d.press("93p")
	d.await(`no node 9`)
	d.await(`node 3 paused`)
	d.press("r2sa")
	d.await(`node 3 resumed`)
	d.await(`node 2 restarted`)
	d.await(`node 4 added`)
	d.await(`pages 30 of 30, edits [1-9].*waiting [0-9]+, .*nodes 1 2 3 .4.$`)
	found := false
	for !found {
		d.await(`pages 30`) // loading continues
		resp, err := http.Get(page + "?q=e")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		found = strings.Contains(string(text), "30 of 30 indexed pages")
	}
	d.press("q")
	for range d.lines { // to the end
	}
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if left, err := os.ReadDir(d.dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestDemoThatFails: the logs named by the error exist, in the directory that it prints. If the
// output is no terminal it contains no control sequences, although the input is one.
func TestDemoThatFails(t *testing.T) {
	dir := t.TempDir()
	temporary := filepath.Join(dir, "tmp")
	if err := os.Mkdir(temporary, 0o700); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Found by the demo under its own name to start its nodes.
	if err := os.Symlink("/bin/false", filepath.Join(dir, "percolator")); err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer terminal.Close()
	cmd := exec.CommandContext(t.Context(), self, "demo", "--for", "1m")
	cmd.Args[0] = "percolator"
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary, "PATH="+dir)
	cmd.Stdin = terminal
	out, err := cmd.CombinedOutput()
	log := regexp.MustCompile(`see (/\S+\.log)`).FindSubmatch(out)
	if err == nil || log == nil || !strings.Contains(string(out), "are kept in "+temporary) {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(string(log[1])); err != nil {
		t.Error(err)
	}
	if strings.Contains(string(out), "\x1b") {
		t.Errorf("%q", out)
	}
}

// TestDemoKilled: the nodes end with the demo, even if it is killed.
func TestDemoKilled(t *testing.T) {
	d := demonstrate(t)
	addr := d.await(`^node 3 +clients ([^ ]+) `)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); os.IsTimeout(err) {
		t.Errorf("a node has outlived the demo: %v", err)
	}
	_ = d.cmd.Wait()
}
