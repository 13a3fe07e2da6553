package percolator_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryTypeHasAnExample: each exported type is used in an example or named by its comment,
// except former names.
func TestEveryTypeHasAnExample(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var examples []byte
	mentioned := "" // the comments of all examples
	exported := map[string]bool{}
	fset := token.NewFileSet()
	for _, name := range names {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(fset, name, src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if strings.HasPrefix(d.Name.Name, "Example") {
					mentioned += d.Doc.Text()
					examples = append(examples, src[fset.Position(d.Pos()).Offset:fset.Position(d.End()).Offset]...)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok && s.Name.IsExported() &&
						!strings.HasSuffix(name, "_test.go") && !strings.Contains(d.Doc.Text(), "Deprecated:") {
						exported[s.Name.Name] = true
					}
				}
			}
		}
	}
	if len(exported) < 40 {
		t.Fatalf("only %d types", len(exported))
	}
	for name := range exported {
		used := regexp.MustCompile(`percolator\.` + name + `\b|func Example` + name + `[_(]`)
		if !used.Match(examples) && !regexp.MustCompile(`\b`+name+`\b`).MatchString(mentioned) {
			t.Errorf("no example uses %s", name)
		}
	}
}
