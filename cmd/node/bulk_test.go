package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
)

// bulkRows writes N rows into a file, in the form of export: three columns with the same value,
// different in every row.
func bulkRows(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: rows N FILE")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	var text bytes.Buffer
	for i := range n {
		fmt.Fprintf(&text, `{"row":"%07d","columns":{"a":"%d","b":"%d","c":"%d"}}`+"\n", i, i, i, i)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), text.Bytes(), 0o600))
}

// whole checks that every row of an exported file has all columns of its line: no transaction was
// torn. It prints the number of rows.
func whole(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: whole FILE")
	}
	n := 0
	for line := range bytes.Lines([]byte(ts.ReadFile(args[0]))) {
		var row struct{ Columns map[string]string }
		ts.Check(json.Unmarshal(line, &row))
		c := row.Columns
		if len(c) != 3 || c["a"] != c["b"] || c["b"] != c["c"] {
			ts.Fatalf("half a row: %s", line)
		}
		n++
	}
	_, err := fmt.Fprintf(ts.Stdout(), "%d rows\n", n)
	ts.Check(err)
}

// killed runs a command and kills it (-9) once its progress file has advanced by N rows. The
// command must not have finished by then.
func killed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: killed N PROGRESS command args...")
	}
	cmd, ended := runUntilProgress(ts, args)
	ts.Check(cmd.Process.Kill())
	if err := <-ended; err == nil {
		ts.Fatalf("the command came to its end")
	}
}

// interrupted interrupts a command with SIGINT, as Ctrl-C does: it cleans up and fails.
func interrupted(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: interrupted N PROGRESS command args...")
	}
	cmd, ended := runUntilProgress(ts, args)
	ts.Check(cmd.Process.Signal(os.Interrupt))
	err := <-ended
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		ts.Fatalf("ended with %v, want exit code 1", err)
	}
	_, err = fmt.Fprint(ts.Stdout(), cmd.Stderr)
	ts.Check(err)
}

// runUntilProgress starts a command and waits until its progress file has N more rows. ended
// receives the command's result.
func runUntilProgress(ts *testscript.TestScript,
	args []string) (cmd *exec.Cmd, ended <-chan error) {
	n, err := strconv.ParseInt(args[0], 10, 64)
	ts.Check(err)
	progress := func() (rows int64) {
		// In a location of backups, finished ranges count.
		if done, err := filepath.Glob(ts.MkAbs(args[1]) + "/*/*.range"); len(done) > 0 || err != nil {
			ts.Check(err)
			return int64(len(done))
		}
		var state struct{ Rows int64 }
		text, err := os.ReadFile(ts.MkAbs(args[1]))
		if err == nil {
			ts.Check(json.Unmarshal(text, &state)) // replaced as a whole: never half of one
		}
		return state.Rows
	}
	before := progress()
	cmd = exec.Command(args[2], args[3:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "PERCOLATOR_ADDR="+ts.Getenv("PERCOLATOR_ADDR"))
	cmd.Stderr = &bytes.Buffer{}
	ts.Check(cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	ts.Defer(func() { _ = cmd.Process.Kill() }) // if the script fails meanwhile
	poll(ts, "no progress", func() bool {
		if len(done) > 0 {
			ts.Fatalf("the command ended by itself: %v", <-done)
		}
		return progress() >= before+n
	})
	ts.Logf("ended after row %d", progress())
	return cmd, done
}
