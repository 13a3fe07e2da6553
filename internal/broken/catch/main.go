// Command catch shows that every deliberately broken build is caught: for each patch in
// testdata/broken it runs the test that must notice with the property broken, which has to fail
// at the named assertion within 2 minutes, and with nothing broken and the same seed, which has
// to pass. Each package's tests are compiled once, with all patches laid over the tree; twice as
// many properties are tried at a time as there are processors.
//
//	go run ./internal/broken/catch                  all
//	go run ./internal/broken/catch ack_outside …    only these
//	go run ./internal/broken/catch -overlay DIR     write patched files to DIR, print what to give to go build -overlay
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// runLimit limits the time to catch a broken build, without compilation.
const runLimit = 2 * time.Minute

// property is one patch and how the loss that it makes is noticed.
type property struct {
	tag       string // BROKEN=<tag>, and the patch's name
	pkg       string
	test      string   // -test.run
	assertion string   // a regular expression that the failing run's output must match
	env       []string // for both runs
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
	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	if len(only) == 2 && only[0] == "-overlay" {
		name, err := overlay(root, only[1])
		if err == nil {
			fmt.Println(name)
		}
		return err
	}
	if err := complete(root); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "catch-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var chosen []property
	for _, p := range properties {
		if len(only) == 0 || slices.Contains(only, p.tag) {
			chosen = append(chosen, p)
		}
	}
	if len(only) > 0 && len(chosen) != len(only) {
		return fmt.Errorf("not all of %v are names of properties (patches in testdata/broken, without .patch)", only)
	}
	if err := build(ctx, root, dir, chosen); err != nil {
		return err
	}
	faults := make([]error, len(chosen))
	var slots errgroup.Group
	slots.SetLimit(2 * runtime.NumCPU()) // most of the tests wait
	for i, p := range chosen {
		slots.Go(func() error {
			line, err := p.check(ctx, dir)
			if err != nil {
				faults[i] = fmt.Errorf("%s: %w", p.tag, err)
				line = "NOT CAUGHT"
			}
			fmt.Printf("%-20s %-18s %s\n", p.tag, p.pkg, line)
			return nil
		})
	}
	_ = slots.Wait() // no function returns an error
	return errors.Join(faults...)
}

// complete checks that every patch is in the table and that the table names only existing patches.
func complete(root string) error {
	names, err := filepath.Glob(filepath.Join(root, patches, "*.patch"))
	if err != nil {
		return err
	}
	var have, want []string
	for _, name := range names {
		have = append(have, strings.TrimSuffix(filepath.Base(name), ".patch"))
	}
	for _, p := range properties {
		want = append(want, p.tag)
	}
	slices.Sort(have)
	slices.Sort(want)
	if want = slices.Compact(want); !slices.Equal(have, want) {
		return fmt.Errorf("the patches are for %v, and the tests for %v: they must be the same", have, want)
	}
	return nil
}

// check runs the test with the property broken and with nothing broken. The line names the
// assertion that caught it and the time.
func (p *property) check(ctx context.Context, dir string) (line string, err error) {
	binary := filepath.Join(dir, path.Base(p.pkg)+".test")
	began := time.Now()
	out, err := p.execute(ctx, binary, append(slices.Clone(p.env), "BROKEN="+p.tag))
	took := time.Since(began)
	switch {
	case errors.Is(err, errSkipped):
		return fmt.Sprintf("NOT TESTED: %s skips here (run it as root)", p.test), nil
	case err == nil:
		return "", fmt.Errorf("the test passed with the property broken:\n%s", out)
	case took >= runLimit:
		return "", fmt.Errorf("not caught within %v", runLimit)
	}
	met := regexp.MustCompile(p.assertion).Find(out)
	if met == nil {
		return "", fmt.Errorf("failed, but not at the assertion %q:\n%s", p.assertion, out)
	}
	env, seed := slices.Clone(p.env), ""
	if m := seedText.FindSubmatch(out); m != nil {
		seed = ", seed " + string(m[1])
		env = append(env, "SEED="+string(m[1]))
	}
	began = time.Now()
	if out, err := p.execute(ctx, binary, append(env, "BROKEN=")); err != nil {
		return "", fmt.Errorf("the test also fails with nothing broken%s: %w\n%s", seed, err, out)
	}
	passed := time.Since(began)
	return fmt.Sprintf("caught by %s in %v, sound in %v%s: %s", p.test,
		took.Round(10*time.Millisecond),
		passed.Round(10*time.Millisecond), seed, met), nil
}

// build compiles the tests of the properties' packages into dir, as <last element>.test. The linker
// omits debug information.
func build(ctx context.Context, root, dir string, chosen []property) error {
	list, err := overlay(root, filepath.Join(dir, "src"))
	if err != nil {
		return err
	}
	packages := map[string][]string{} // by the directory of their module
	for _, p := range chosen {
		module := moduleOf(root, p.pkg)
		pkg := "./" + strings.TrimPrefix(p.pkg, module+"/")
		if !slices.Contains(packages[module], pkg) {
			packages[module] = append(packages[module], pkg)
		}
	}
	for module, pkgs := range packages {
		args := append([]string{
			"-C", filepath.Join(root, module), "test", "-c", "-overlay", list, "-ldflags=-s -w", "-o",
			dir + string(filepath.Separator),
		}, pkgs...)
		if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// moduleOf returns the directory, relative to root, of the module that has the package.
func moduleOf(root, pkg string) string {
	for ; pkg != "."; pkg = path.Dir(pkg) {
		if _, err := os.Stat(filepath.Join(root, pkg, "go.mod")); err == nil {
			return pkg
		}
	}
	return pkg
}

// errSkipped reports that the test needs root or a kernel feature that is missing here.
var errSkipped = errors.New("skipped")

// execute runs a compiled test in its package's directory, as go test does.
func (p *property) execute(ctx context.Context, binary string, env []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run", p.test, "-test.v", "-test.timeout",
		runLimit.String())
	cmd.Dir = p.pkg
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil && bytes.Contains(out, []byte("--- SKIP: ")):
		return out, errSkipped
	case err == nil && !bytes.Contains(out, []byte("--- PASS: ")):
		return out, errors.New("no test ran: the name in the table matches none")
	}
	return out, err
}
