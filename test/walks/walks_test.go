// Package walks runs the commands that the documents give to a new user, verbatim: the fenced
// blocks after a line <!-- walk: NAME -->, all of one name in one shell. The shell's output must
// contain the TEXT of a comment "# prints TEXT", and a following block ```text is the output of
// the block before it (output_test.go).
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

// documents lists the documents that contain walks.
var documents = []string{"README.md", "docs/operating/running.md", "docs/operating/security.md",
	"docs/operating/backup.md", "docs/reference/command-line.md",
	"docs/guide/tour.md", "docs/guide/debugging.md", "docs/guide/gateway.md", "docs/guide/workers.md"}

var (
	block = regexp.MustCompile("(?s)<!-- walk: ([a-z-]+) -->\n```sh\n(.*?)\n```\n" +
		"(?:\n```text\n(.*?)\n```\n)?")
	prints = regexp.MustCompile(`(?m)# prints (.*)$`)
)

// walkTimeout bounds a walk, the compilation of the binary included.
const walkTimeout = 2 * time.Minute

// TestWalks runs each walk in a new directory, as the first process of new namespaces: its ports
// are free, and nothing of it is left when it ends.
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
	bin := build(t, top)
	walks := 0
	for _, document := range documents {
		steps := stepsOf(t, top, document)
		for name := range steps {
			walks++
			end := ended
			if document == "README.md" { // the document says how, so that the block leaves a running node to try
				end = ""
			}
			t.Run(name, func(t *testing.T) { walk(t, bin, steps[name], end) })
		}
	}
	if walks < 2 {
		t.Errorf("only %d walks were found", walks)
	}
}

// typeScript is the document with a walk that needs Node.js.
const typeScript = "docs/guide/search-index.md"

// typeScriptBuild matches the builds of that walk, which need the npm registry.
var typeScriptBuild = regexp.MustCompile("(?s)<!-- typescript -->\n```sh\n(.*?)\n```\n")

// TestTypeScriptWalks runs the walks of typeScript. make typescript sets TYPESCRIPT.
func TestTypeScriptWalks(t *testing.T) {
	if os.Getenv("TYPESCRIPT") == "" || os.Geteuid() != 0 {
		t.Skip("only make typescript has Node.js, and only root makes network namespaces")
	}
	top, err := filepath.Abs(filepath.Join("..", ".."))
	must(t, err)
	text, err := os.ReadFile(filepath.Join(top, typeScript))
	must(t, err)
	for _, m := range typeScriptBuild.FindAllStringSubmatch(string(text), -1) {
		install := exec.Command("bash", "-euc", m[1])
		install.Dir = top
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	bin := build(t, top)
	for name, steps := range stepsOf(t, top, typeScript) {
		t.Run(name, func(t *testing.T) { walk(t, bin, steps, ended) })
	}
}

// build builds the programs of the documents, and returns their folder.
func build(t *testing.T, top string) string {
	t.Helper()
	bin := t.TempDir()
	goBuild(t, top, "-o", filepath.Join(bin, "percolator"), "./cmd/node")
	for _, arguments := range guideBuilds(t, top) {
		goBuild(t, top, append([]string{"-o", bin + "/"}, arguments...)...)
	}
	return bin
}

// stepsOf returns the walks of a document, by name.
func stepsOf(t *testing.T, top, document string) map[string][]step {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, document))
	must(t, err)
	steps := map[string][]step{}
	for _, m := range block.FindAllStringSubmatch(string(text), -1) {
		steps[m[1]] = append(steps[m[1]], step{script: m[2], output: m[3]})
	}
	return steps
}

// ended fails if a walk has left processes or settings in its shell, which would affect the next
// walk of a reader.
const ended = `[ -z "$(jobs -rp)" ] && ! env | grep ^PERCOLATOR_`

// walk runs one script, followed by end. `make build` finds a Makefile without work to do.
func walk(t *testing.T, bin string, steps []step, end string) {
	script := join(steps)
	dir := t.TempDir()
	must(t, os.Symlink(bin, filepath.Join(dir, "bin")))
	must(t, os.Symlink(examples(t), filepath.Join(dir, "examples")))
	must(t, os.WriteFile(filepath.Join(dir, "Makefile"), []byte("build:\n"), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), walkTimeout)
	defer cancel()

	cmd := exec.CommandContext(ctx, "bash", "-euxc",
		"ip link set lo up\n"+script+"\n"+end)
	cmd.Dir = dir
	cmd.Env = environment(dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID}
	cmd.WaitDelay = time.Second // processes that it left running have its output, and end with it
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
	for _, fault := range compare(steps, string(out)) {
		t.Errorf("%s\n%s", fault, out)
	}
}

// examples returns the folder of the examples, whose programs in other languages walks run.
func examples(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join("..", "..", "examples"))
	must(t, err)
	return folder
}

func goBuild(t *testing.T, top string, arguments ...string) {
	t.Helper()
	build := exec.Command("go", append([]string{"build", "-buildvcs=false"}, arguments...)...)
	build.Dir = top
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// environment returns the test's environment without Percolator's settings.
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
