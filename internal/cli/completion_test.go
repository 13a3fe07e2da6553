package cli

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// proposed returns a shell's completions of a line, without cobra's directive.
func proposed(t *testing.T, cluster *fakeCluster, environ []string, args ...string) string {
	t.Helper()
	code, stdout, _ := runApp(t, cluster, environ, append([]string{"__complete"}, args...)...)
	if code != shell.ExitDone {
		t.Errorf("%v: exit code %d", args, code)
	}
	var words []string
	for line := range strings.Lines(stdout) {
		if word, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); word != "" && word[0] != ':' {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"get ":                     "bank",
		"why ":                     "count mail",
		"why count Bob ":           "",
		"notify ls ":               "count mail",
		"trace bank Bob --search ": "bank",
		"observer pause ":          "count mail",
		"notify ls --observer ":    "count mail",
		"scan bank -o ":            "table json",
		"get bank row --escape ":   "text go hex base64",
		"completion ":              "bash zsh fish powershell",
		"lock resolve ":            "bank",
		"export bank ":             "", // files: completed by the shell
		"observer re":              "replay resume retire",
		// plain text to another machine: only on request
		"get --addr 10.0.0.1:7800 ba":  "",
		"get --addr 127.0.0.1:7800 ba": "bank",
	} {
		if got := proposed(t, bankCluster(), nil, strings.Split(line, " ")...); got != want {
			t.Errorf("%q proposes %q, want %q", line, got, want)
		}
	}
}

// Without an answer nothing is proposed or printed, and completion ends soon.
func TestCompletionWithoutANode(t *testing.T) {
	cluster := bankCluster()
	cluster.fail = errors.New("refused")
	if got := proposed(t, cluster, nil, "get", ""); got != "" {
		t.Errorf("proposed %q", got)
	}
	if got := proposed(t, bankCluster(), []string{"PERCOLATOR_NONSENSE=1"}, "get", ""); got != "" {
		t.Errorf("proposed %q", got)
	}
	synctest.Test(t, func(t *testing.T) {
		var stdout strings.Builder
		start := time.Now()
		app := &shell.App{
			Name: "percolator", Stdin: strings.NewReader(""), Stdout: &stdout,
			Stderr: &strings.Builder{},
			Connect: func(ctx context.Context, _ []string, _ rpc.ClientConfig) (txn.Transport,
				error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
		}
		if code := Run(t.Context(), app, []string{"__completeNoDesc", "get", ""}); code != shell.ExitDone {
			t.Errorf("exit code %d", code)
		}
		if took := time.Since(start); took != completionTimeout {
			t.Errorf("it took %v, want %v", took, completionTimeout)
		}
	})
}

func TestCompletionScripts(t *testing.T) {
	for name, words := range map[string]string{
		"bash": "__start_percolator", "zsh": "#compdef percolator",
		"fish": "complete -c percolator", "powershell": "Register-ArgumentCompleter",
	} {
		code, stdout, _ := runApp(t, bankCluster(), nil, "completion", name)
		if code != shell.ExitDone || !strings.Contains(stdout, words) {
			t.Errorf("%s: exit code %d, %d bytes", name, code, len(stdout))
		}
		_, stdout, _ = runApp(t, bankCluster(), nil, "completion", name, "-o", "json")
		if !strings.HasPrefix(stdout, `{"shell":"`+name+`","script":"`) {
			t.Errorf("%s in JSON: %.40s", name, stdout)
		}
	}
}

// The first signal ends long requests, and results so far are kept.
func TestInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := bankCluster()
		cluster.hang = true
		signals := make(chan os.Signal, 1)
		var stderr strings.Builder
		app := &shell.App{
			Name: "percolator", Stdin: strings.NewReader(""), Stdout: &strings.Builder{},
			Stderr: &stderr, Signals: signals,
			Connect: func(context.Context, []string, rpc.ClientConfig) (txn.Transport, error) {
				return cluster, nil
			},
		}
		signals <- os.Interrupt
		if code := Run(t.Context(), app, []string{"status"}); code != shell.ExitFailed ||
			!strings.Contains(stderr.String(), "interrupted") {
			t.Errorf("exit code %d: %s", code, stderr.String())
		}
	})
}
