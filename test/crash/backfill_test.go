package crash

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/node"
)

// childBackfill makes the child process back-fill an observer; its value is the maximum number of
// runs in its life, 0: unlimited.
const childBackfill = "PERCOLATOR_CRASH_BACKFILL"

// Sizes of the back-fill. It marks at most 2,048 rows ahead of the runs, and the lives that are
// killed have few runs, so that every kill interrupts it.
const (
	backfillTable = "pages"
	backfillRows  = 5000
	backfillLives = 3   // that are killed
	backfillRuns  = 600 // maximum in each of them
)

var (
	text = percolator.Column{Table: backfillTable, Name: "text"}
	// the observer's result
	length = percolator.Column{Table: backfillTable, Name: "length"}
	runs   = percolator.Column{Table: backfillTable, Name: "runs"} // the number of its runs
)

func backfillRow(i int) string { return fmt.Sprintf("row%05d", i) }

// measure is the observer.
func measure(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	v, _, err := tx.Get(ctx, n.Row, text)
	if err != nil {
		return err
	}
	before, _, err := tx.Get(ctx, n.Row, runs)
	if err != nil {
		return err
	}
	tx.Set(n.Row, length, strconv.AppendInt(nil, int64(len(v)), 10))
	tx.Set(n.Row, runs, append(before, '+'))
	return nil
}

// backfillChild starts the back-fill, or finds it started, and prints its progress until it has
// ended and nothing is pending: "ran" for each run, "rows n" after each poll, "done" at the end.
func backfillChild(dir string) error {
	most, err := strconv.Atoi(os.Getenv(childBackfill))
	if err != nil {
		return err
	}
	ctx := context.Background()
	var ran atomic.Int64
	observe := func(ctx context.Context, tx *percolator.Tx, m percolator.Notification) error {
		if most > 0 && ran.Add(1) > int64(most) {
			<-ctx.Done() // the rest is for another life
			return ctx.Err()
		}
		fmt.Println("ran")
		return measure(ctx, tx, m)
	}
	n, err := openWith(ctx, dir, func(c *node.Config) {
		c.Observers = func(r *percolator.Registry) { r.Strong("measure", text, observe) }
	})
	if err != nil {
		return err
	}
	ask := func(action pb.BackfillRequest_Action) (*pb.Backfill, error) {
		r, err := handle.Client(n.DB()).Admin().Backfill(ctx,
			&pb.BackfillRequest{Name: "measure", Action: action})
		return r.GetBackfill(), err
	}
	b, err := ask(pb.BackfillRequest_ACTION_START)
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for ; err == nil && !b.Done; b, err = ask(pb.BackfillRequest_ACTION_READ) {
		if b.Error != "" {
			return errors.New(b.Error)
		}
		fmt.Println("rows", b.Rows)
		<-look.C
	}
	if err != nil {
		return err
	}
	fmt.Println("rows", b.Rows)
	if err := n.DB().WaitIdle(ctx); err != nil {
		return err
	}
	fmt.Println("done")
	return n.Close(ctx)
}

// progress is the back-fill's progress as the children report it.
type progress struct {
	rows int // the highest number of marked rows seen by a child
	ran  int // in this life
	done bool
}

// TestKillInBackfill: a back-fill that is killed repeatedly marks every row, never starts over,
// and in the end no row's observer has run twice.
func TestKillInBackfill(t *testing.T) {
	dir, rng := t.TempDir(), rand.New(rand.NewPCG(*seed, 2))
	prepareBackfill(t, dir)
	p := &progress{}
	for range backfillLives {
		p.life(t, dir, 1+rng.IntN(backfillRuns))
		if p.done || p.rows >= backfillRows {
			t.Fatalf("%d rows were marked before the kill: it came too late to say anything",
				p.rows)
		}
		t.Logf("killed after %d runs, when %d rows were marked", p.ran, p.rows)
	}
	if p.life(t, dir, 0); !p.done || p.rows != backfillRows {
		t.Fatalf("not through: %+v", *p)
	}
	checkBackfill(t, dir)
}

// prepareBackfill writes rows before their observer exists.
func prepareBackfill(t *testing.T, dir string) {
	t.Helper()
	withNode(t, dir, func(ctx context.Context, n *node.Node) error {
		if err := n.DB().CreateTable(ctx,
			percolator.TableSpec{
				Name: backfillTable, SplitKeys: []string{backfillRow(backfillRows / 2)},
			}); err != nil {
			return err
		}
		const batch = 500
		for from := 0; from < backfillRows; from += batch {
			if err := n.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
				for i := from; i < from+batch; i++ {
					tx.Set(backfillRow(i), text, []byte(strings.Repeat("x", i%97)))
				}
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// life runs one child until it ends or has reported the given number of runs.
func (p *progress) life(t *testing.T, dir string, killAfter int) {
	t.Helper()
	most := 0
	if killAfter > 0 {
		most = backfillRuns
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir, childBackfill+"="+strconv.Itoa(most))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }() // it was killed, or has printed "done"
	late := time.AfterFunc(time.Minute, func() { _ = kill(cmd.Process) })
	defer late.Stop()
	p.ran = 0
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			return // killed: an unfinished last line does not count
		}
		if err == nil {
			err = p.hear(strings.TrimSpace(line))
		}
		if err == nil && killAfter > 0 && p.ran == killAfter {
			err = kill(cmd.Process)
		}
		if err != nil {
			t.Error(errors.Join(err, kill(cmd.Process)))
			return
		}
	}
}

// hear parses one line of the child's output.
func (p *progress) hear(line string) error {
	verb, arg, _ := strings.Cut(line, " ")
	switch verb {
	case "ran":
		p.ran++
		return nil
	case "done":
		p.done = true
		return nil
	case "rows":
		n, err := strconv.Atoi(arg)
		if err == nil && n < p.rows {
			err = fmt.Errorf("the back-fill is at %d rows and was at %d", n, p.rows)
		}
		p.rows = n
		return err
	default:
		return fmt.Errorf("the node said: %s", line)
	}
}

// checkBackfill checks the observer's result for each row.
func checkBackfill(t *testing.T, dir string) {
	t.Helper()
	withNode(t, dir, func(ctx context.Context, n *node.Node) error {
		s, err := n.DB().Snapshot(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		wrong := 0
		for i := range backfillRows {
			got, _, err := s.Get(ctx, backfillRow(i), length)
			if err != nil {
				return err
			}
			times, _, err := s.Get(ctx, backfillRow(i), runs)
			if err != nil {
				return err
			}
			if string(got) != strconv.Itoa(i%97) || string(times) != "+" {
				if wrong++; wrong <= 5 {
					t.Errorf("row %d: length %q after %d runs, want %d after one", i, got,
						len(times), i%97)
				}
			}
		}
		if wrong > 0 {
			t.Errorf("%d of %d rows are wrong", wrong, backfillRows)
		}
		return nil
	})
}

// withNode runs fn on the node of the directory and closes the node afterwards.
func withNode(t *testing.T, dir string, fn func(ctx context.Context, n *node.Node) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := open(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(fn(ctx, n), n.Close(ctx)); err != nil {
		t.Fatal(err)
	}
}
