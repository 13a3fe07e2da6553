package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// patches is the directory of the broken builds, one per property, below the root of the
// repository.
const patches = "testdata/broken"

var (
	// patched finds the files that a patch changes.
	patched = regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)`)
	// clause finds a file's package clause.
	clause = regexp.MustCompile(`(?m)^package \w+$`)
)

// imported is inserted after the package clause of each patched file that calls broken.On, on the
// same line, so that patches need no import and do not conflict there.
const imported = `; import "github.com/percolator-go/percolator/internal/broken"`

// overlay applies all patches of the repository at root to copies of the files in dir, and
// writes the file that `go build -overlay` wants. It returns that file's name. A patch that no
// longer applies is an error that names it.
func overlay(root, dir string) (string, error) {
	names, err := filepath.Glob(filepath.Join(root, patches, "*.patch"))
	if err != nil {
		return "", err
	}
	if len(names) == 0 {
		return "", fmt.Errorf("no patches in %s: run it in the root of the repository", patches)
	}
	files := map[string]bool{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		for _, m := range patched.FindAllSubmatch(text, -1) {
			files[string(m[1])] = true
		}
	}
	for file := range files {
		if err := copyFile(filepath.Join(root, file), filepath.Join(dir, file)); err != nil {
			return "", err
		}
	}
	if err := apply(dir, names); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file := range files {
		to := filepath.Join(dir, file)
		text, err := os.ReadFile(to)
		if err != nil {
			return "", err
		}
		at := clause.FindIndex(text)
		if at == nil {
			return "", fmt.Errorf("%s has no package clause", file)
		}
		if bytes.Contains(text, []byte("broken.On(")) {
			text = append(text[:at[1]:at[1]], append([]byte(imported), text[at[1]:]...)...)
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = to
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}

// apply applies the patches beneath dir, one after the other, with one line of context at
// least. The error names all that fail.
func apply(dir string, names []string) error {
	var faults []error
	for _, name := range names {
		name, err := filepath.Abs(name)
		if err != nil {
			return err
		}
		cmd := exec.Command("git", "apply", "-C1", name)
		cmd.Dir = dir
		// Git must not use a repository that contains dir: the paths in the patch are relative to
		// dir.
		cmd.Env = append(os.Environ(), "GIT_DIR="+filepath.Join(dir, "none"),
			"GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
		if out, err := cmd.CombinedOutput(); err != nil {
			faults = append(faults, fmt.Errorf(
				"%s no longer applies (CONTRIBUTING.md explains how to regenerate it): %w: %s",
				filepath.Base(name), err, strings.TrimSpace(string(out))))
		}
	}
	return errors.Join(faults...)
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}
