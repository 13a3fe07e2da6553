package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/app"
	"github.com/percolator-go/percolator/node"
)

// patience is the timeout of every wait of a transcript.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"percolator": main, "observed": observed,
		"application": application, "abandon": abandon})
}

// observed is a program with its own observers, as a user would write it: a copy of one column, a
// bell rung by the copy, one that always fails, and a chain of two.
func observed() {
	column := func(name string) percolator.Column {
		return percolator.Column{Table: "t", Name: name}
	}
	app.Main(func(r *percolator.Registry) {
		r.Strong("copy", column("in"), func(ctx context.Context, tx *percolator.Tx,
			n percolator.Notification) error {
			v, _, err := tx.Get(ctx, n.Row, n.Column)
			if err != nil {
				return err
			}
			tx.Set(n.Row, column("out"), v)
			tx.Notify(n.Row, column("bell"))
			return nil
		})
		r.Weak("ring", column("bell"), func(_ context.Context, tx *percolator.Tx,
			n percolator.Notification) error {
			tx.Set(n.Row, column("rung"), []byte("yes"))
			return nil
		})
		r.Strong("fail", column("bad"), func(context.Context, *percolator.Tx,
			percolator.Notification) error {
			return errors.New("boom")
		}, percolator.MaxAttempts(2))
		// A chain of two, the second in another row.
		for _, link := range []struct{ name, from, to, suffix string }{
			{"pass", "first", "second", ""}, {"onward", "second", "third", "-next"},
		} {
			r.Strong(link.name, column(link.from), func(_ context.Context, tx *percolator.Tx,
				n percolator.Notification) error {
				tx.Set(n.Row+link.suffix, column(link.to), []byte("done"))
				return nil
			})
		}
	})
}

// application is a program with a table, commands and flags of its own, and a service that runs
// with its node.
func application() {
	name := percolator.Typed(percolator.Column{Table: "people", Name: "name"},
		percolator.Text[string]())
	var motto string
	app.Main(func(r *percolator.Registry) {
		r.Table(percolator.TableSpec{Name: "people", SplitKeys: []string{"m"}})
	}, app.Default("meet"),
		app.Command("meet NAME...", "Write names down",
			func(ctx context.Context, call *app.Invocation) error {
				if call.Args[0] == "nobody" {
					return call.Usage("nobody is no name")
				}
				db, err := call.DB(ctx)
				if err != nil {
					return err
				}
				for _, who := range call.Args {
					if err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
						name.Set(tx, who, strings.ToUpper(who))
						return nil
					}); err != nil {
						return err
					}
				}
				_, err = fmt.Fprintf(call.Stdout, "met %d, %s\n", len(call.Args), motto)
				return err
			}, func(flags *flag.FlagSet) { flags.StringVar(&motto, "words", "gladly", "a word") }),
		app.Flags(func(flags *flag.FlagSet) {
			flags.StringVar(&motto, "motto", "none", "what the node says at first and at last")
		}),
		app.OnStart(func(ctx context.Context, n *node.Node) error {
			if motto == "fail" {
				return errors.New("this motto fails")
			}
			if err := n.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
				name.Set(tx, "motto", motto)
				return nil
			}); err != nil {
				return err
			}
			<-ctx.Done()
			fmt.Println("the node still serves:", n.Status().GetNodeId() > 0)
			return ctx.Err()
		}))
}

// TestTranscripts runs the transcripts in testdata/script against the real command, each
// in a directory of its own. Beside testscript's commands they have
//
//	code N percolator ARGS…   runs it; the exit code must be N
//	up FILE                   waits until the node that writes this --ready-file serves; sets PERCOLATOR_ADDR and $HTTP
//	term FILE                 sends SIGTERM to the node that wrote the ready file
//	until REGEXP percolator … runs it until its output matches
//	fetch PATH                prints what the node's HTTP listener answers
//	rows N FILE               writes N rows as JSON lines
//	whole FILE                checks that no row of an export is torn, and counts them
//	killed N PROGRESS …       runs a command and kills it -9 when its progress file is N rows further
//	interrupted N PROGRESS …  runs a command, and sends SIGINT then; it must end with exit code 1
func TestTranscripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": code, "up": up, "until": until, "fetch": fetch, "term": term,
			"rows": bulkRows, "whole": whole, "killed": killed, "interrupted": interrupted,
		},
	})
}

// code checks the exit code of a command.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command args...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// ready is the content of a node's --ready-file.
type ready struct {
	Addr string
	HTTP string
	PID  int
}

// term asks a node to stop.
func term(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: term FILE")
	}
	var ready ready
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &ready))
	ts.Check(syscall.Kill(ready.PID, syscall.SIGTERM))
}

// up waits for a ready file.
func up(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: up FILE")
	}
	var ready ready
	poll(ts, "no ready file", func() bool {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && json.Unmarshal(text, &ready) == nil
	})
	ts.Setenv("PERCOLATOR_ADDR", ready.Addr)
	ts.Setenv("HTTP", ready.HTTP)
}

// until repeats a command that succeeds until its output matches.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP command args...")
	}
	poll(ts, "no match", func() bool {
		if err := ts.Exec(args[1], args[2:]...); err != nil {
			return false
		}
		return matches(ts, args[0], ts.ReadFile("stdout"))
	})
}

// fetch prints an answer of the HTTP listener, its status first.
func fetch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: fetch PATH")
	}
	client := &http.Client{Timeout: patience}
	resp, err := client.Get("http://" + ts.Getenv("HTTP") + args[0])
	ts.Check(err)
	defer func() { _ = resp.Body.Close() }()
	_, err = ts.Stdout().Write([]byte(resp.Status + "\n"))
	ts.Check(err)
	_, err = readInto(ts, resp.Body)
	ts.Check(err)
}

// poll waits for a condition.
func poll(ts *testscript.TestScript, complaint string, ok func() bool) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			ts.Fatalf("%s within %v", complaint, patience)
		case <-tick.C:
		}
	}
}
