package archtest

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	maxFileLines    = 600
	maxFuncLines    = 70
	maxPackageLines = 6000
)

// finding is one violation: the rule, the file relative to the root, and the name or line
// that breaks it.
type finding struct{ rule, file, what string }

func (f finding) String() string { return f.rule + " " + f.file + " " + f.what }

// TestHouseRules checks the whole repository against the rules of this package.
func TestHouseRules(t *testing.T) {
	findings, err := inspect(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	allowed := readAllowed(t)
	for _, f := range findings {
		if _, ok := allowed[f.String()]; ok {
			allowed[f.String()] = true
			continue
		}
		t.Errorf("%s", f)
	}
	for entry, used := range allowed {
		if !used {
			t.Errorf("testdata/allowed.txt: %q excuses nothing any more: remove it", entry)
		}
	}
}

// TestRulesCanFail applies the rules to a tree that breaks each of them once: testdata/bad, and a
// file, a function and a package that are one line too long.
func TestRulesCanFail(t *testing.T) {
	tree := filepath.Join(t.TempDir(), "bad")
	if err := os.CopyFS(tree, os.DirFS(filepath.Join("testdata", "bad"))); err != nil {
		t.Fatal(err)
	}
	function := "package bad\n\nfunc tooLong() {\n" + strings.Repeat("\t_ = answer\n", maxFuncLines-1) + "}\n"
	for name, text := range map[string]string{
		"function.go": function, "long.go": "package bad\n" + strings.Repeat("//\n", maxFileLines),
	} {
		if err := os.WriteFile(filepath.Join(tree, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// 10 files of maxFileLines and one of a single line.
	for i := range maxPackageLines/maxFileLines + 1 {
		text := "// Package large is one line too long.\npackage large\n" + strings.Repeat("//\n", maxFileLines-2)
		if i == 0 {
			text = "package large\n"
		}
		path := filepath.Join(tree, "large", fmt.Sprintf("file%d.go", i))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	findings, err := inspect(tree)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range findings {
		got = append(got, f.String())
	}
	want := []string{
		"doc bad.go Exported",
		"doc bad.go Number",
		"doc bad.go Type",
		"doc bad.go Type.Method",
		"file long.go 601 lines",
		"func function.go tooLong: 71 lines",
		"init bad.go init",
		"package bad.go package bad has no comment",
		"package large 6001 lines",
		"sleep bad_test.go line 8",
		"unfinished bad.go line 3",
		"unfinished notes.md line 1",
	}
	slices.Sort(got)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// readAllowed maps each excused finding to whether it occurred; # begins a comment.
func readAllowed(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "allowed.txt"))
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			allowed[line] = false
		}
	}
	return allowed
}

var (
	generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	// The words are split here so that the rule does not find itself.
	unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b|not (yet )?imple` +
		`mented`)
)

// inspect walks the tree under root. Directories named testdata, bin, tmp or with a leading dot are
// skipped.
func inspect(root string) ([]finding, error) {
	w := &walker{root: root, commented: map[string]bool{}, packages: map[string]string{}, lines: map[string]int{}}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			name := d.Name()
			if path != root && (name == "testdata" || name == "bin" || name == "tmp" ||
				strings.HasPrefix(name, ".")) {
				return fs.SkipDir
			}
			return nil
		}
		return w.file(path)
	})
	w.checkPackages()
	return w.findings, err
}

// walker collects findings over one tree.
type walker struct {
	root      string
	findings  []finding
	packages  map[string]string // directory → one of its non-test files
	commented map[string]bool   // directories whose package has a comment
	lines     map[string]int    // directory → lines of its non-test files
}

func (w *walker) add(rule, path, format string, args ...any) {
	w.findings = append(w.findings, finding{rule, w.rel(path), fmt.Sprintf(format, args...)})
}

func (w *walker) rel(path string) string {
	rel, err := filepath.Rel(w.root, path)
	if err != nil {
		return path
	}
	return filepath.ToSlash(rel)
}

func (w *walker) file(path string) error {
	ext := filepath.Ext(path)
	switch {
	case ext == ".go", ext == ".md", ext == ".proto", ext == ".yml",
		filepath.Base(path) == "Makefile":
	default:
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if ext == ".go" && generated.Match(text) {
		return nil
	}
	line := 0
	for l := range bytes.Lines(text) {
		line++
		if unfinished.Match(l) {
			w.add("unfinished", path, "line %d", line)
		}
	}
	if ext != ".go" {
		return nil
	}
	return w.goFile(path, text, line)
}

func (w *walker) goFile(path string, text []byte, lines int) error {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text,
		parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if strings.HasSuffix(path, "_test.go") {
		w.sleeps(path, fset, file)
		return nil
	}
	dir := filepath.Dir(path)
	if w.packages[dir] == "" {
		w.packages[dir] = path
	}
	if file.Doc != nil {
		w.commented[dir] = true
	}
	w.lines[dir] += lines
	if lines > maxFileLines {
		w.add("file", path, "%d lines", lines)
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			w.function(path, fset, d)
		case *ast.GenDecl:
			w.declaration(path, file.Name.Name, d)
		}
	}
	return nil
}

func (w *walker) checkPackages() {
	for dir, file := range w.packages {
		if w.lines[dir] > maxPackageLines {
			w.add("package", dir, "%d lines", w.lines[dir])
		}
		if !w.commented[dir] {
			name := filepath.Base(dir)
			if dir == w.root && w.rel(dir) == "." {
				abs, _ := filepath.Abs(dir)
				name = filepath.Base(abs)
			}
			w.add("package", file, "package %s has no comment", name)
		}
	}
}
