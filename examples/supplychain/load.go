package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	percolator "github.com/percolator-go/percolator"
)

const (
	aptLists  = "/var/lib/apt/lists"
	aptHelper = "/usr/lib/apt/apt-helper" // reads lists of any compression
	// perLoad is the number of packages that one transaction loads.
	perLoad = 100
)

// lists finds apt's lists: those of the release first, then those of -updates and -security.
func lists() ([]string, error) {
	found, err := filepath.Glob(filepath.Join(aptLists, "*_Packages*"))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no lists of packages in %s: run apt-get update, or name files",
			aptLists)
	}
	increment := func(name string) bool {
		return strings.Contains(name, "-updates") || strings.Contains(name, "-security")
	}
	slices.SortStableFunc(found, func(a, b string) int {
		switch {
		case increment(a) == increment(b):
			return 0
		case increment(b):
			return -1
		default:
			return 1
		}
	})
	return found, nil
}

// named is a package with its name.
type named struct {
	name string
	Package
}

// read calls fn with each package of a file.
func read(ctx context.Context, file string, fn func(named) error) (err error) {
	if !slices.Contains([]string{".lz4", ".gz", ".xz", ".zst", ".bz2"}, filepath.Ext(file)) {
		plain, failed := os.Open(file)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, plain.Close()) }()
		return parse(plain, fn)
	}
	cmd := exec.CommandContext(ctx, aptHelper, "cat-file", file)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("reading compressed lists needs apt: %w", err)
	}
	if err := parse(out, fn); err != nil { // nothing reads the rest of out
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s %s: %w", aptHelper, file, err)
	}
	return nil
}

// parse calls fn with each package of a list (deb822(5)).
func parse(r io.Reader, fn func(named) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 4<<20)
	var p named
	end := func() error {
		done := p
		p = named{}
		if done.name == "" || done.Version == "" {
			return nil
		}
		return fn(done)
	}
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			if err := end(); err != nil {
				return err
			}
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch field {
		case "Package":
			p.name = value
		case "Version":
			p.Version = value
		case "Depends", "Pre-Depends":
			p.Depends = append(p.Depends, relations(value)...)
		case "Provides":
			p.Provides = relations(value)
		}
	}
	return errors.Join(lines.Err(), end())
}

// relations returns the names in a field such as "libc6 (>= 2.34), debconf | cdebconf:any".
func relations(value string) []string {
	var names []string
	for _, r := range strings.FieldsFunc(value, func(c rune) bool { return c == ',' || c == '|' }) {
		r = strings.TrimSpace(r)
		if i := strings.IndexAny(r, " (:["); i >= 0 {
			r = r[:i]
		}
		if r != "" {
			names = append(names, r)
		}
	}
	return names
}

// load writes those packages of a file that are newer than the stored ones, and counts all.
func load(ctx context.Context, db *percolator.DB, file string) (count int, err error) {
	l := db.Loader(percolator.LoaderConfig{Workers: 8, Backlog: -1, Name: "load"})
	var some []named
	flush := func() error {
		batch := some
		some = nil
		return l.Load(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			return loadSome(ctx, tx, batch)
		})
	}
	err = read(ctx, file, func(p named) error {
		count++
		if some = append(some, p); len(some) < perLoad {
			return nil
		}
		return flush()
	})
	if err == nil && len(some) > 0 {
		err = flush()
	}
	return count, errors.Join(err, l.Close())
}

func loadSome(ctx context.Context, tx *percolator.Tx, some []named) error {
	names := make([]string, len(some))
	for i, p := range some {
		names[i] = p.name
	}
	cells, err := packages.GetMulti(ctx, tx, names...)
	if err != nil {
		return err
	}
	versions := map[string]string{}
	for _, c := range cells {
		versions[c.Row] = c.Value.Version
	}
	for _, p := range some {
		if have, ok := versions[p.name]; ok && compareVersions(p.Version, have) <= 0 {
			continue
		}
		versions[p.name] = p.Version
		packages.Set(tx, p.name, p.Package)
	}
	return nil
}
