package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
)

// bulkRows writes N rows into a file, as export would: three columns of one value, which is different in every row.
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

// whole checks that every row of an exported file has all that its line had: no transaction was torn. It prints how many
// rows there are.
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

// killed runs a command and kills it (-9) once the progress file says that it has come N rows further. The command must
// not have come to its end by then.
func killed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: killed N PROGRESS command args...")
	}
	n, err := strconv.ParseInt(args[0], 10, 64)
	ts.Check(err)
	progress := func() (rows int64) {
		var state struct{ Rows int64 }
		text, err := os.ReadFile(ts.MkAbs(args[1]))
		if err == nil {
			ts.Check(json.Unmarshal(text, &state)) // replaced as a whole: never half of one
		}
		return state.Rows
	}
	before := progress()
	cmd := exec.Command(args[2], args[3:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "PERCOLATOR_ADDR="+ts.Getenv("PERCOLATOR_ADDR"))
	ts.Check(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		_ = cmd.Process.Kill()
		<-ended
	}()
	poll(ts, "no progress", func() bool {
		select {
		case err := <-ended:
			ended <- err
			ts.Fatalf("the command ended by itself: %v", err)
		default:
		}
		return progress() >= before+n
	})
	ts.Logf("killed after row %d", progress())
}
