package feedfile

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
)

var column = percolator.Column{Table: "t", Name: "c"}

// TestEachOnce: Follow is ended again and again, and the end of its last file damaged as by a
// crash, while rows are written. In the end each commit is in the files once.
func TestEachOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	db := percolatortest.Start(t, nil).DB()
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: column.Table}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Dir: filepath.Join(t.TempDir(), "changes"), Subscription: "files", FileBytes: 1 << 10,
		SyncEvery: 5 * time.Millisecond,
	}
	want, last := map[percolator.Timestamp]string{}, percolator.Timestamp(0)
	for round := range 5 {
		following, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- Follow(following, db, cfg, percolator.Rows("t")) }()
		for i := range 40 {
			row := fmt.Sprintf("%d", rand.IntN(10))
			err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
				tx.Set(row, column, fmt.Appendf(nil, "%d/%d", round, i))
				return nil
			}, percolator.CommittedAt(&last))
			if err != nil {
				t.Fatal(err)
			}
			want[last] = fmt.Sprintf("%s=%d/%d", row, round, i)
			if i == 20 || (i == 39 && round == 4) {
				awaitResolved(ctx, t, cfg.Dir, last)
			}
		}
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if round < 4 {
			damage(t, cfg.Dir)
		}
	}
	got, initial := read(t, cfg.Dir)
	for at, change := range want {
		if got[at] != change && at > initial {
			t.Errorf("the commit of %s at %d is %q in the files", change, at, got[at])
		}
	}
	if names, _ := Files(cfg.Dir); len(names) < 2 {
		t.Errorf("files %v, none was full", names)
	}
}

// awaitResolved waits until the files have a resolved line that is not below at.
func awaitResolved(ctx context.Context, t *testing.T, dir string, at percolator.Timestamp) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		names, err := Files(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if position, _, err := lastResolved(name); err == nil && position >= at {
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the last commit is not in the files")
		}
	}
}

// damage appends a change without a resolved line and half a line to the newest file.
func damage(t *testing.T, dir string) {
	t.Helper()
	names, err := Files(dir)
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	f, err := os.OpenFile(names[len(names)-1], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(`{"row":"0","column":{"table":"t","name":"c"},"value":"x","commit_ts":1}` + "\n" + `{"resol`)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// read returns the changes of all files by commit timestamp, and the timestamp of the initial state.
func read(t *testing.T, dir string) (got map[percolator.Timestamp]string, initial percolator.Timestamp) {
	t.Helper()
	names, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	got = map[percolator.Timestamp]string{}
	rows := map[string]percolator.Timestamp{}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			var c percolator.Change
			if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
				t.Fatalf("%s: %q: %v", name, lines.Text(), err)
			}
			switch {
			case c.Resolved != 0:
				if initial == 0 {
					initial = c.Resolved
				}
				continue
			case got[c.CommitTS] != "":
				t.Errorf("the change at %d is there twice", c.CommitTS)
			case c.CommitTS < rows[c.Row]:
				t.Errorf("row %s at %d after %d", c.Row, c.CommitTS, rows[c.Row])
			}
			rows[c.Row] = c.CommitTS
			got[c.CommitTS] = fmt.Sprintf("%s=%s", c.Row, c.Value)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return got, initial
}
