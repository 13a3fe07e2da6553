// Command catch shows that every deliberately broken build is caught: for each constant of package broken it runs the
// test that must notice with the tag, which has to fail at the named assertion within a minute, and without the tag, with
// the same seed, which has to pass.
//
//	go run ./internal/broken/catch                  all
//	go run ./internal/broken/catch ack_outside …    only these
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// runLimit is how long a broken build may take to be caught. Compilation does not count.
const runLimit = time.Minute

// property is one constant of package broken and how its loss is noticed.
type property struct {
	tag       string // broken_<tag>
	pkg       string
	test      string   // -test.run
	assertion string   // a regular expression that the failing run's output must match
	env       []string // for the broken run
}

// seedText finds the seed that a failing random test prints.
var seedText = regexp.MustCompile(`\(seed (\d+)`)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "catch:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, only []string) error {
	if len(only) == 0 {
		if err := complete(); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "catch-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var faults []error
	known := 0
	for _, p := range properties {
		if len(only) > 0 && !slices.Contains(only, p.tag) {
			continue
		}
		known++
		line, err := p.check(ctx, dir)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", p.tag, err))
			line = "NOT CAUGHT"
		}
		fmt.Printf("%-20s %-18s %s\n", p.tag, p.pkg, line)
	}
	if len(only) > 0 && known != len(only) {
		return fmt.Errorf("%v: not all of these are known", only)
	}
	return errors.Join(faults...)
}

// complete makes sure that every constant of package broken is in the table.
func complete() error {
	files, err := filepath.Glob(filepath.Join("internal", "broken", "*_on.go"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("run it in the root of the repository")
	}
	var missing []string
	for _, file := range files {
		tag := strings.TrimSuffix(filepath.Base(file), "_on.go")
		if !slices.ContainsFunc(properties, func(p property) bool { return p.tag == tag }) {
			missing = append(missing, tag)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("no test is named for %v", missing)
	}
	return nil
}

// check runs the test broken and whole. The line says what caught it and how fast.
func (p *property) check(ctx context.Context, dir string) (line string, err error) {
	broken, err := p.build(ctx, dir, true)
	if err != nil {
		return "", err
	}
	whole, err := p.build(ctx, dir, false)
	if err != nil {
		return "", err
	}
	began := time.Now()
	out, err := p.execute(ctx, broken, p.env)
	took := time.Since(began)
	switch {
	case errors.Is(err, errSkipped):
		return fmt.Sprintf("NOT TESTED: %s skips here (run it as root)", p.test), nil
	case err == nil:
		return "", fmt.Errorf("the broken build passed:\n%s", out)
	case took >= runLimit:
		return "", fmt.Errorf("not caught within %v", runLimit)
	}
	met := regexp.MustCompile(p.assertion).Find(out)
	if met == nil {
		return "", fmt.Errorf("failed, but not at the assertion %q:\n%s", p.assertion, out)
	}
	env, seed := p.env, ""
	if m := seedText.FindSubmatch(out); m != nil {
		seed = ", seed " + string(m[1])
		env = append(slices.Clone(env), "SEED="+string(m[1]))
	}
	if out, err := p.execute(ctx, whole, env); err != nil {
		return "", fmt.Errorf("the whole build fails as well%s: %w\n%s", seed, err, out)
	}
	return fmt.Sprintf("caught by %s in %v%s: %s", p.test, took.Round(10*time.Millisecond), seed, met), nil
}

// build compiles the package's tests, with the tag or without.
func (p *property) build(ctx context.Context, dir string, tagged bool) (binary string, err error) {
	binary = filepath.Join(dir, strings.ReplaceAll(p.pkg, "/", "_"))
	args := []string{"test", "-c", "-ldflags=-s -w"} // nobody debugs them, and linking is most of it
	if tagged {
		binary += "." + p.tag
		args = append(args, "-tags", "broken_"+p.tag)
	}
	args = append(args, "-o", binary, "./"+p.pkg)
	out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return binary, nil
}

// errSkipped: the test needs root or a kernel feature that is missing here.
var errSkipped = errors.New("skipped")

// execute runs a compiled test in its package's directory, as go test does.
func (p *property) execute(ctx context.Context, binary string, env []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run", p.test, "-test.v", "-test.timeout", runLimit.String())
	cmd.Dir = p.pkg
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil && bytes.Contains(out, []byte("--- SKIP: ")):
		return out, errSkipped
	case err == nil && !bytes.Contains(out, []byte("--- PASS: ")):
		return out, errors.New("no test ran")
	}
	return out, err
}
