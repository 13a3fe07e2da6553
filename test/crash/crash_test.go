// Package crash kills a node with -9 at random moments, repeatedly on one directory, and checks
// that acknowledged writes survive, that the sum of the bank's accounts is unchanged, and that
// timestamps never decrease.
package crash

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/disk"
	"github.com/percolator-go/percolator/test/workload"
)

var (
	kills = flag.Int("kills", 6, "how often the node is killed")
	seed  = flag.Uint64("seed", 1, "of the moments")
)

// childDir names the directory of the node that the child process runs.
const childDir = "PERCOLATOR_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		work := child
		if os.Getenv(childSchema) != "" {
			work = schemaChild
		}
		if os.Getenv(childFull) != "" {
			work = fullChild
		}
		if os.Getenv(childBackfill) != "" {
			work = backfillChild
		}
		if os.Getenv(childGateway) != "" {
			work = gatewayChild
		}
		if err := work(dir); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func open(ctx context.Context, dir string) (*node.Node, error) {
	return openWith(ctx, dir, func(*node.Config) {})
}

// openWith is open with another configuration.
func openWith(ctx context.Context, dir string, change func(*node.Config)) (*node.Node, error) {
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = dir, "127.0.0.1:0", "", true
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr,
		&slog.HandlerOptions{Level: slog.LevelWarn}))
	change(&cfg)
	return node.Open(ctx, cfg)
}

// child runs a node and a load on it until it is killed. It prints a line after each
// acknowledgment.
func child(dir string) error {
	ctx := context.Background()
	n, err := open(ctx, dir)
	if err != nil {
		return err
	}
	db := n.DB()
	if err := workload.Prepare(ctx, db, 3); err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	if exists, err := hasBank(ctx, db); err != nil {
		return err
	} else if !exists {
		if err := workload.OpenBank(ctx, db); err != nil {
			return err
		}
	}
	say("ready")
	for w := range 4 {
		go write(ctx, db, w, say)
	}
	return workload.Bank(ctx, db, workload.Load{
		Workers: 4, Duration: time.Minute, Seed: uint64(os.Getpid()),
	})
}

func hasBank(ctx context.Context, db *percolator.DB) (bool, error) {
	tables, err := db.Tables(ctx)
	if err != nil || len(tables) == 0 {
		return false, err
	}
	return workload.CheckBank(ctx, db) == nil, nil
}

var acked = percolator.Column{Table: workload.Table, Name: "acked"}

// write commits new rows in one phase and in two, and prints the acknowledged ones with their
// timestamps.
func write(ctx context.Context, db *percolator.DB, worker int, say func(string, ...any)) {
	for i := 0; ; i++ {
		id := fmt.Sprintf("%d-%d-%d", os.Getpid(), worker, i)
		var at percolator.Timestamp
		err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set("10/"+id, acked, []byte(id))
			if i%2 == 0 { // another tablet
				tx.Set("f0/"+id, acked, []byte(id))
			}
			return nil
		}, percolator.CommittedAt(&at))
		if err == nil {
			say("acked %s %d %v", id, at, i%2 == 0)
		}
	}
}

// witness records the output of the children.
type witness struct {
	rows map[string]bool // id: whether it is in two tablets
	last uint64          // the greatest timestamp
}

func TestKillLosesNothingAcknowledged(t *testing.T) {
	dir, rng := t.TempDir(), rand.New(rand.NewPCG(*seed, 0))
	w := &witness{rows: map[string]bool{}}
	for k := range *kills {
		w.life(t, dir, time.Duration(rng.IntN(1500))*time.Millisecond, func(*os.Process) error {
			return nil
		})
		t.Logf("kill %d: %d transactions acknowledged so far", k+1, len(w.rows))
	}
	if len(w.rows) == 0 {
		t.Fatal("nothing was ever acknowledged")
	}
	w.check(t, dir)
}

// TestPowerLossLosesNothingAcknowledged: acknowledged writes survive power losses, which discard
// all unsynced data. So applying entries needs no sync of its own.
func TestPowerLossLosesNothingAcknowledged(t *testing.T) {
	d, rng := disk.New(t, 2<<30), rand.New(rand.NewPCG(*seed, 1))
	dir := filepath.Join(d.Dir(), "node")
	w := &witness{rows: map[string]bool{}}
	for k := range *kills {
		w.life(t, dir, time.Duration(rng.IntN(1500))*time.Millisecond, func(p *os.Process) error {
			if err := disk.Freeze(p.Pid); err != nil {
				return err
			}
			return d.Cut()
		})
		if err := d.Unmount(); err != nil {
			t.Fatal(err)
		}
		if err := d.Mount(); err != nil {
			t.Fatal(err)
		}
		t.Logf("power loss %d: %d transactions acknowledged so far", k+1, len(w.rows))
		w.check(t, dir)
	}
	if len(w.rows) == 0 {
		t.Fatal("nothing was ever acknowledged")
	}
}

// life runs one child and kills it some time after it is ready, directly after it has called
// before.
func (w *witness) life(t *testing.T, dir string, after time.Duration,
	before func(*os.Process) error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := w.last
	ready, fault := false, make(chan error, 1)
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			break // killed: an unfinished last line does not count
		}
		f := strings.Fields(line)
		switch {
		case err != nil:
			t.Fatal(err)
		case f[0] == "ready":
			ready = true
			time.AfterFunc(after, func() {
				fault <- errors.Join(before(cmd.Process), kill(cmd.Process))
			})
		case f[0] == "acked" && len(f) == 4:
			at, err := strconv.ParseUint(f[2], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if at <= last {
				t.Fatalf("oracle: timestamp %d after the restart, %d before it", at, last)
			}
			w.rows[f[1]] = f[3] == "true"
			w.last = max(w.last, at)
		default:
			t.Fatalf("the node said: %s", line)
		}
	}
	_ = cmd.Wait()
	if !ready {
		t.Fatal("the node did not come up")
	}
	if err := <-fault; err != nil {
		t.Fatal(err)
	}
}

// kill kills the process. A process that has already ended is no error.
func kill(p *os.Process) error {
	if err := p.Kill(); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

func (w *witness) check(t *testing.T, dir string) {
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
	if err := workload.CheckBank(ctx, n.DB()); err != nil {
		t.Error(err)
	}
	w.checkRows(ctx, t, n)
}

// checkRows checks that every acknowledged row exists.
func (w *witness) checkRows(ctx context.Context, t *testing.T, n *node.Node) {
	t.Helper()
	s, err := n.DB().Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	lost := 0
	for id, both := range w.rows {
		rows := []string{"10/" + id}
		if both {
			rows = append(rows, "f0/"+id)
		}
		for _, row := range rows {
			v, ok, err := s.Get(ctx, row, acked)
			if err != nil {
				t.Fatal(err)
			}
			if !ok || string(v) != id {
				lost++
			}
		}
	}
	if lost > 0 {
		t.Errorf("%d acknowledged cells of %d transactions are gone", lost, len(w.rows))
	}
}
