package crash

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
)

// childSchema makes the child process change tables instead of cells.
const childSchema = "PERCOLATOR_CRASH_SCHEMA"

var parts = []string{"", "g", "p"} // where the tablets of each table begin

// schemaChild creates, splits and drops tables until it is killed. It prints "made x" after table x
// was acknowledged with a row in each part, and "drop x" before dropping it.
func schemaChild(dir string) error {
	ctx := context.Background()
	n, err := open(ctx, dir)
	if err != nil {
		return err
	}
	db := n.DB()
	tables, err := db.Tables(ctx)
	if err != nil {
		return err
	}
	for _, t := range tables { // those that an interrupted life has left can be written
		if err := fill(ctx, db, t.Name); err != nil {
			return fmt.Errorf("table %s: %w", t.Name, err)
		}
	}
	fmt.Println("ready")
	var mu sync.Mutex
	say := func(verb, name string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(verb, name)
	}
	failed := make(chan error)
	for w := range 2 {
		go func() {
			for i := 0; ; i++ {
				if err := schemaTurn(ctx, db, fmt.Sprintf("t%d-%d-%d", os.Getpid(), w, i), i%2 == 0,
					say); err != nil {
					failed <- err
				}
			}
		}()
	}
	return <-failed
}

// schemaTurn creates a table, and drops it if requested.
func schemaTurn(ctx context.Context, db *percolator.DB, name string, drop bool,
	say func(verb, name string)) error {
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: name,
		SplitKeys: parts[1:]}); err != nil {
		return err
	}
	if err := fill(ctx, db, name); err != nil {
		return err
	}
	say("made", name)
	if !drop {
		return nil
	}
	say("drop", name)
	return db.DropTable(ctx, name)
}

// fill writes a row into each part of the table, in one transaction.
func fill(ctx context.Context, db *percolator.DB, table string) error {
	return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		for _, p := range parts {
			tx.Set(p+"row", percolator.Column{Table: table, Name: "c"}, []byte(table))
		}
		return nil
	})
}

// TestKillDuringSchemaChanges: a node killed while it creates, splits and drops tables starts
// again, every listed table can be written in all of its parts, and every acknowledged table
// exists with its rows.
func TestKillDuringSchemaChanges(t *testing.T) {
	dir, rng, made := t.TempDir(), rand.New(rand.NewPCG(*seed, 2)), map[string]bool{}
	for range *kills {
		schemaLife(t, dir, time.Duration(rng.IntN(400))*time.Millisecond, made)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := open(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	s, err := n.DB().Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for name := range made {
		for _, p := range parts {
			v, ok, err := s.Get(ctx, p+"row", percolator.Column{Table: name, Name: "c"})
			if err != nil || !ok || string(v) != name {
				t.Errorf("table %s row %srow: %q, %v, %v", name, p, v, ok, err)
			}
		}
	}
	t.Logf("%d tables", len(made))
}

// schemaLife runs one child and kills it some time after it is ready; made are the tables that must
// exist.
func schemaLife(t *testing.T, dir string, after time.Duration, made map[string]bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir, childSchema+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := false
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			break
		}
		switch f := strings.Fields(line); {
		case err != nil:
			t.Fatal(err)
		case f[0] == "ready":
			ready = true
			time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		case f[0] == "made":
			made[f[1]] = true
		case f[0] == "drop":
			delete(made, f[1])
		default:
			t.Fatalf("the node said: %s", line)
		}
	}
	_ = cmd.Wait()
	if !ready {
		t.Fatal("the node did not come up")
	}
}
