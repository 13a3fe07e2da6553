// Package walks runs what the documents tell a new user to type, as it stands there: the
// fenced blocks after a line <!-- walk: NAME -->, all of one name in one shell. A comment
// "# prints TEXT" is part of what the shell must print.
package walks

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// documents are looked through for walks.
var documents = []string{"README.md", "docs/operating.md", "docs/reference/command-line.md"}

var (
	block  = regexp.MustCompile("(?s)<!-- walk: ([a-z-]+) -->\n```sh\n(.*?)\n```\n")
	prints = regexp.MustCompile(`(?m)# prints (.*)$`)
)

// walkTimeout bounds a walk, the compilation of the binary included.
const walkTimeout = 2 * time.Minute

// TestWalks runs each walk in a directory of its own, and as the first process of
// namespaces of its own: its ports are free, and nothing of it is left when it ends.
func TestWalks(t *testing.T) {
	if testing.Short() {
		t.Skip("clusters of processes take a while")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root makes network namespaces")
	}
	top, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(bin, "percolator"),
		"./cmd/node")
	build.Dir = top
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	walks := 0
	for _, document := range documents {
		text, err := os.ReadFile(filepath.Join(top, document))
		if err != nil {
			t.Fatal(err)
		}
		scripts := map[string]string{}
		for _, m := range block.FindAllStringSubmatch(string(text), -1) {
			scripts[m[1]] += m[2] + "\n"
		}
		for name, script := range scripts {
			walks++
			t.Run(name, func(t *testing.T) { walk(t, bin, script) })
		}
	}
	if walks < 2 {
		t.Errorf("only %d walks were found", walks)
	}
}

// walk runs one script. `make build` finds a Makefile whose work is done.
func walk(t *testing.T, bin, script string) {
	dir := t.TempDir()
	must(t, os.Symlink(bin, filepath.Join(dir, "bin")))
	must(t, os.WriteFile(filepath.Join(dir, "Makefile"), []byte("build:\n"), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), walkTimeout)
	defer cancel()

	cmd := exec.CommandContext(ctx, "bash", "-euxc",
		"ip link set lo up\n"+script)
	cmd.Dir = dir
	cmd.Env = environment(dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID}
	cmd.WaitDelay = time.Second // what it left running has its output, and ends with it
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, m := range prints.FindAllStringSubmatch(script, -1) {
		if !regexp.MustCompile(`(?m)^[^+].*` + regexp.QuoteMeta(m[1]) + `|^` +
			regexp.QuoteMeta(m[1])).Match(out) {
			t.Errorf("%q is not in what was printed:\n%s", m[1], out)
		}
	}
}

// environment is the test's own without settings of ours.
func environment(dir string) []string {
	env := []string{"HOME=" + dir}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PERCOLATOR_") && !strings.HasPrefix(entry, "HOME=") {
			env = append(env, entry)
		}
	}
	return env
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
