package cli

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/inspect"
)

// verb matches a formatting verb.
var verb = regexp.MustCompile(`%[a-z]`)

// TestRemediesParse: every command line in the texts of package health, which `percolator doctor`
// and the console show for pasting, is a complete command line of this program.
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
			for i, part := range strings.Split(text, "`") {
				if i%2 == 1 && strings.HasPrefix(part, "percolator ") {
					checked++
					commandParses(t, name, part)
				} else if strings.Contains(part, "percolator ") {
					t.Errorf("%s: where does the command end? Put it between backquotes: %q", name, part)
				}
			}
			return false
		})
	}
	if checked < 15 {
		t.Errorf("only %d command lines", checked)
	}
}

var (
	// filled matches a placeholder of a JavaScript template, scripted a command line in a text of
	// it.
	filled   = regexp.MustCompile(`\$\{[^{}]*\}`)
	scripted = regexp.MustCompile("[\"`](percolator [^\"`]*)[\"`]")
)

// TestConsolesCommandsParse: every command line in the console's pages is one that this program
// accepts.
func TestConsolesCommandsParse(t *testing.T) {
	names, err := filepath.Glob(filepath.Join("..", "httpd", "console", "*.js"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, name := range names {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range scripted.FindAllStringSubmatch(filled.ReplaceAllString(string(source), "1"), -1) {
			checked++
			commandParses(t, name, m[1])
		}
	}
	if checked < 15 {
		t.Errorf("only %d command lines", checked)
	}
}

// literal returns the text of a literal, or of a sum with literals in it; unknown parts become 1,
// which is a number as well as a name.
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

// commandParses requires that the command exists and accepts these flags and arguments. A
// placeholder counts as any argument.
func commandParses(t *testing.T, file, line string) {
	t.Helper()
	// A separate tree: flags keep their values.
	target, args, err := commands(t)[0].Find(strings.Fields(line)[1:])
	if err == nil && (!target.Runnable() || target.HasSubCommands()) {
		err = errors.New("no command")
	}
	if err == nil {
		if err = target.ParseFlags(args); errors.Is(err, pflag.ErrHelp) {
			return
		}
	}
	if err == nil {
		err = target.ValidateArgs(target.Flags().Args())
	}
	if err != nil {
		t.Errorf("%s: `%s` can't be pasted: %v", file, line, err)
	}
}

// TestOfflineCommands: suggested commands end in --addr unless they connect to no node, in the
// command line and in the console.
func TestOfflineCommands(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		_, path, _ := strings.Cut(c.CommandPath(), " ")
		online := c.Flags().Lookup("addr") != nil
		if c.Runnable() && !c.HasSubCommands() && inspect.Offline.MatchString(path) == online {
			t.Errorf("%s: has --addr: %v", path, online)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(commands(t)[0])
	script, err := os.ReadFile(filepath.Join("..", "httpd", "console", "session.js"))
	same := strings.TrimPrefix(inspect.Offline.String(), "^")
	if err != nil || !strings.Contains(string(script), "/^percolator "+same+"/") {
		t.Errorf("session.js has no /^percolator %s/: %v", same, err)
	}
}

// TestSuggestedAddress: a suggested command reaches the same node with the same certificates.
func TestSuggestedAddress(t *testing.T) {
	cluster := bankCluster()
	cluster.whole = &pb.ClusterStatusResponse{Findings: []*pb.Finding{
		{Severity: pb.Severity_SEVERITY_INFO, Remedy: "See (`percolator node ls`), or `percolator cert show`."},
	}}
	_, stdout, _ := runApp(t, cluster, nil, "doctor", "--addr", "127.0.0.1:1,[::1]:2", "--insecure")
	for _, want := range []string{"`percolator node ls --addr '127.0.0.1:1,[::1]:2' --insecure`", "`percolator cert show`"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %s in %s", want, stdout)
		}
	}
	_, _, stderr := runApp(t, cluster, nil, "why", "nobody", "x", "--addr", "127.0.0.1:1")
	if !strings.Contains(stderr, "`percolator observer ls --addr 127.0.0.1:1`") {
		t.Error(stderr)
	}
}
