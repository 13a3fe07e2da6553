package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"time"
)

// Options say where the results of a measurement go.
type Options struct {
	Out   string // folder of JSON and plots
	Docs  string // Markdown file with the measurement's markers; empty: none
	Plots string // path of Out relative to Docs' folder
	// Command is the command line that repeats the measurement.
	Command []string
	Print   io.Writer // of the tables
}

// Execute runs a measurement and publishes its results. Those of a measurement that failed have its
// error, and do not replace earlier ones in Docs.
func Execute(ctx context.Context, m Measurement, r *Run, o Options) error {
	result := &Result{
		Name: m.Name, Title: m.Title, Commit: commit(ctx), Command: o.Command, Began: time.Now().UTC(),
		Rounds: r.Rounds, Seed: r.Seed, Smoke: r.Smoke, Machine: machine(r.Dir),
	}
	err := recovered(ctx, m, r)
	result.Took = time.Since(result.Began).Round(time.Second).String()
	if err != nil {
		err = fmt.Errorf("%s: %w", m.Name, err)
		result.Error = err.Error()
	}
	r.mu.Lock() // a goroutine that the measurement left running may still record
	defer r.mu.Unlock()
	result.Tables, result.Plots, result.Notes = r.tables, r.plots, r.notes
	errs := []error{err, result.print(o.Print), result.write(o.Out)}
	if o.Docs != "" && err == nil {
		errs = append(errs, result.document(o.Docs, o.Plots))
	}
	return errors.Join(errs...)
}

// recovered turns a panic of the measurement into its error.
func recovered(ctx context.Context, m Measurement, r *Run) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return m.Run(ctx, r)
}

// commit names the commit of the source, and whether it was changed since; "" outside of git.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// InDir calls do with a new directory below parent, and removes it afterwards. Other users may enter
// it: PostgreSQL runs as another one. Its path is short enough for a socket if parent's is.
func InDir(parent string, do func(dir string) error) (err error) {
	dir, err := os.MkdirTemp(parent, "m")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	return do(dir)
}
