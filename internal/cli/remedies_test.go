package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// verb is a place of a format.
var verb = regexp.MustCompile(`%[a-z]`)

// TestRemediesParse: every command line in the texts of package health, which `percolator
// doctor` and the console show for somebody to type, is one of this program.
func TestRemediesParse(t *testing.T) {
	names, err := filepath.Glob(filepath.Join("..", "health", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text, whole := literal(e)
			if !whole {
				return true
			}
			for _, rest := range strings.Split(text, "percolator ")[1:] {
				checked++
				remedyParses(t, name, rest)
			}
			return false
		})
	}
	if checked < 15 {
		t.Errorf("only %d command lines", checked)
	}
}

// literal is the text of a literal, or of a sum with literals in it; 1 stands for what is
// not known here, as it is a number as well as a name.
func literal(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return verb.ReplaceAllString(text, "1"), err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		x, left := literal(e.X)
		y, right := literal(e.Y)
		return x + y, e.Op == token.ADD && (left || right)
	}
	return "1", false
}

// remedyParses wants a command at the beginning of a text that goes on in prose: it, with
// some of the words behind it, is accepted, and there is each flag that they name.
func remedyParses(t *testing.T, file, text string) {
	t.Helper()
	if end := strings.IndexAny(text, ".;,:)"); end >= 0 {
		text = text[:end]
	}
	words := strings.Fields(text)
	target, rest, err := commands(t)[0].Find(words)
	if err != nil || !target.Runnable() || target.HasSubCommands() {
		t.Errorf("%s: %q: no command: %v", file, text, err)
		return
	}
	for _, word := range rest {
		if flag, ok := strings.CutPrefix(word, "--"); ok && target.Flag(flag) == nil {
			t.Errorf("%s: %q: no flag %s", file, text, word)
		}
	}
	open := len(rest) == 0 // only the command is named, or a flag without its value
	if len(rest) > 0 {
		flag := target.Flag(strings.TrimPrefix(rest[len(rest)-1], "--"))
		open = flag != nil && flag.NoOptDefVal == ""
	}
	if open {
		words, rest = append(words, "1"), append(rest, "1")
	}
	for n := len(words) - len(rest); n <= len(words); n++ {
		// A tree of its own: flags keep what they were set to.
		target, args, err := commands(t)[0].Find(words[:n])
		if err == nil {
			err = target.ParseFlags(args)
		}
		if err == nil && target.ValidateArgs(target.Flags().Args()) == nil {
			return
		}
	}
	t.Errorf("%s: %q is not accepted, however much of it is the command", file, text)
}
