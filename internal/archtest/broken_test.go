package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"testing"
)

// TestBrokenBuildsMatch compares the constants of internal/broken/off.go with the variables of
// on.go: a name that only one of them has compiles in one kind of build only.
func TestBrokenBuildsMatch(t *testing.T) {
	dir := filepath.Join("..", "broken")
	off := declared(t, filepath.Join(dir, "off.go"), token.CONST)
	on := declared(t, filepath.Join(dir, "on.go"), token.VAR)
	on = slices.DeleteFunc(on, func(name string) bool { return name == "chosen" })
	if len(off) == 0 || !slices.Equal(off, on) {
		t.Errorf("off.go has %v\non.go has %v\nwant the same, in the same order", off, on)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := filepath.Base(file); name != "doc.go" && name != "off.go" && name != "on.go" {
			t.Errorf("internal/broken/%s: properties belong in off.go and on.go", name)
		}
	}
}

// declared returns the names that file declares with const or var.
func declared(t *testing.T, file string, kind token.Token) (names []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == kind {
			for _, s := range g.Specs {
				for _, name := range s.(*ast.ValueSpec).Names {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}
