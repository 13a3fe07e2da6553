package bulk

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/inspect"
)

// One run of load. The reader queues batches, which workers of a Loader commit in any order. At a
// checkpoint the reader waits until all of them are committed, and records its position as the
// progress. After a failure the next run continues from the last checkpoint.

// loadState is the content of FILE.progress: the position up to which everything is committed.
type loadState struct {
	job

	// bytes of FILE whose lines are all committed or skipped as bad
	Offset  int64 `json:"offset"`
	Line    int64 `json:"line"` // number of these lines
	Rows    int64 `json:"rows"` // committed
	Skipped int64 `json:"skipped"`
	// of the file's first bytes and the last ones before Offset, to detect another file
	Digest string `json:"digest"`
}

// loadBatch is one transaction's worth of lines, in the order of the file.
type loadBatch struct {
	rows   []*rowCells
	lines  []int64 // line numbers of the rows
	size   int     // bytes in the transaction
	offset int64   // after its last line
}

// loading is one run of load.
type loading struct {
	out  *shell.Printer
	conn *shell.Connector
	loadFlags
	fail   context.CancelCauseFunc // cancels the load; its error is the first failure
	db     *percolator.DB
	loader *percolator.Loader
	table  string
	input  *loadInput
	meter  *shell.Meter
	state  loadState // at the last checkpoint
	saved  time.Time

	mu    sync.Mutex
	moved *sync.Cond     // signalled when a batch has ended
	busy  map[string]int // rows being written: two transactions of one row must keep their order
	done  shell.Tally    // committed by this run and earlier ones
}

// run loads the file. If it fails, the progress file contains the position from which to resume.
func (l *loading) run(ctx context.Context, s *shell.Session) error {
	l.db, l.saved = s.DB, time.Now()
	l.moved = sync.NewCond(&l.mu)
	if err := l.begin(ctx, s); err != nil {
		return err
	}
	ctx, l.fail = context.WithCancelCause(ctx)
	defer l.fail(nil)
	defer context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.moved.Broadcast()
	})()
	l.done = l.tally()
	l.meter = l.out.NewMeter("load", l.done, l.quiet)
	l.loader = s.DB.Loader(percolator.LoaderConfig{
		Workers: l.workers, Queue: l.workers, Backlog: l.backlog, Name: "load",
	})
	err := l.read(ctx)
	if closing := l.loader.Close(); err == nil {
		err = closing
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause // the reader's error was a consequence
	}
	return l.end(err)
}

// begin resumes an interrupted load of the same file, if there is one.
func (l *loading) begin(ctx context.Context, s *shell.Session) (err error) {
	l.state.job = job{Version: 1, Table: l.table}
	if l.state.Cluster, l.state.TableID, err = s.Identify(ctx, l.table); err != nil {
		return err
	}
	if !l.input.resumable() || l.restart {
		return nil // the first checkpoint replaces the old file
	}
	var old loadState
	there, err := loadProgress(l.progressName(), &old)
	if err != nil || !there {
		return err
	}
	wrong := func(what string) error {
		return shell.WithHint(fmt.Errorf("%s %s", l.progressName(), what),
			"--restart loads the whole file, and writes the loaded rows again")
	}
	if !old.isOf(l.state.job) {
		return wrong(fmt.Sprintf("belongs to a load into another table (%s) or cluster",
			inspect.Printable(old.Table)))
	}
	// The counted lines must be unchanged: an offset into another file would skip lines that were
	// never loaded.
	digest, err := fileDigest(l.input.file, old.Offset)
	if err != nil || digest != old.Digest {
		return wrong("does not fit the file: the part already loaded has changed, or cannot be read")
	}
	if _, err := l.input.file.Seek(old.Offset, io.SeekStart); err != nil {
		return err
	}
	l.state = old
	if old.Line > 0 {
		l.out.Note("resuming after line %d", old.Line)
	}
	return nil
}

// read splits the file into batches and queues them.
func (l *loading) read(ctx context.Context) error {
	rows := newRowReader(l.input.from, l.maxLine)
	lines := &rows.lines
	lines.offset, lines.line = l.state.Offset, l.state.Line
	var b loadBatch
	for {
		offset, line := lines.offset, lines.line
		row, err := rows.next()
		if errors.Is(err, errBadLine) {
			if err = l.passOver(lines.line, err); err == nil {
				continue
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				offset, line, err = lines.offset, lines.line, nil
			}
			// Load the good lines before a bad one, so that the next run starts at it.
			if err := l.submit(ctx, b); err != nil {
				return err
			}
			return cmp.Or(l.settle(ctx, offset, line), err)
		}
		b.rows, b.lines, b.size = append(b.rows, row), append(b.lines, lines.line), b.size+row.size()
		if b.offset = lines.offset; len(b.rows) < l.batch && b.size < loadBatchBytes {
			continue
		}
		if err := l.submit(ctx, b); err != nil {
			return err
		}
		b = loadBatch{}
		if !l.input.resumable() || time.Since(l.saved) <= l.checkpoint {
			continue
		}
		if err := l.settle(ctx, lines.offset, lines.line); err != nil {
			return err
		}
		if err := l.save(); err != nil {
			return err
		}
	}
}

// passOver counts and prints a bad line. It returns the error that ends the load if there are too
// many.
func (l *loading) passOver(line int64, why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done.Skipped >= int64(l.skipBad) {
		return shell.WithHint(coded.Errorf("", "%s line %d: %w", l.input.name, line, why),
			fmt.Sprintf("correct the line and run the command again, which resumes "+
				"(--skip-bad %d skips it)", l.done.Skipped+1))
	}
	l.done.Skipped++
	l.out.Note("skipped %s line %d: %v", l.input.name, line, why)
	return nil
}

// submit queues a batch once no queued batch contains its rows: workers commit in any order, but of
// two lines of one row the later one must win.
func (l *loading) submit(ctx context.Context, b loadBatch) error {
	if len(b.rows) == 0 {
		return nil
	}
	err := l.await(ctx, func() bool {
		return !slices.ContainsFunc(b.rows, func(row *rowCells) bool { return l.busy[row.row] > 0 })
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	for _, row := range b.rows {
		l.busy[row.row]++
	}
	l.mu.Unlock()
	return l.loader.LoadThen(ctx, b.buffer(l.table), func(err error) { l.ended(ctx, b, err) })
}

// await blocks until ready, which is called with mu held, returns true, or ctx ends.
func (l *loading) await(ctx context.Context, ready func() bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ctx.Err() == nil && !ready() {
		l.moved.Wait()
	}
	return ctx.Err()
}

// buffer returns the batch's transaction. Of two lines of a row the later one wins.
func (b loadBatch) buffer(table string) func(context.Context, *percolator.Tx) error {
	return func(_ context.Context, tx *percolator.Tx) error {
		for _, row := range b.rows {
			row.buffer(tx, table)
		}
		return nil
	}
}

// ended handles a transaction's outcome. It is called on the worker's goroutine.
func (l *loading) ended(ctx context.Context, b loadBatch, err error) {
	committed := len(b.rows)
	switch {
	case err == nil:
	case errors.Is(err, percolator.ErrCommitUnknown):
		// Write the same values again. This attempt first resolves the locks of the earlier one.
		err = l.db.Transact(ctx, b.buffer(l.table), percolator.Name("load"))
	case permanent(err):
		committed, err = l.oneByOne(ctx, b)
	}
	if err != nil {
		l.fail(err) // the batch's rows stay busy, so there is no further checkpoint
		return
	}
	l.mu.Lock()
	for _, row := range b.rows {
		if l.busy[row.row]--; l.busy[row.row] == 0 {
			delete(l.busy, row.row)
		}
	}
	l.done.Rows, l.done.Bytes = l.done.Rows+int64(committed), max(l.done.Bytes, b.offset)
	done := l.done
	l.moved.Broadcast()
	l.mu.Unlock()
	l.meter.Show(done)
}

// oneByOne writes the batch's rows in order, each in its own transaction, and skips those that the
// database refuses. A row may occur twice.
func (l *loading) oneByOne(ctx context.Context, b loadBatch) (committed int, err error) {
	for i := range b.rows {
		single := loadBatch{rows: b.rows[i : i+1]}
		err := l.db.Transact(ctx, single.buffer(l.table), percolator.Name("load"))
		if err == nil {
			committed++
		} else if permanent(err) {
			err = l.passOver(b.lines[i], err)
		}
		if err != nil {
			return 0, err
		}
	}
	return committed, nil
}

// settle waits until everything queued is committed, and then records the reader's position as the
// progress. It returns an error if ctx ends first.
func (l *loading) settle(ctx context.Context, offset, line int64) error {
	if err := l.await(ctx, func() bool { return len(l.busy) == 0 }); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Offset, l.state.Line = offset, line
	l.state.Rows, l.state.Skipped = l.done.Rows, l.done.Skipped
	return nil
}

// save writes the progress file.
func (l *loading) save() (err error) {
	if !l.input.resumable() {
		return nil
	}
	if l.state.Digest, err = fileDigest(l.input.file, l.state.Offset); err == nil {
		err = saveProgress(l.progressName(), l.state)
	}
	// Read the time after the save, so that a slow disk is not busy with progress alone.
	l.saved = time.Now()
	return err
}

// end reports the result, after all workers have stopped. A complete load leaves no
// progress file.
func (l *loading) end(err error) error {
	if err != nil {
		if saving := l.save(); saving != nil {
			return errors.Join(err, saving)
		}
		l.meter.End(l.tally(), "stopped")
		if l.input.resumable() && !errors.As(err, new(*shell.HintError)) {
			return l.conn.WithResumeHint(err, fmt.Sprintf("line %d", l.state.Line))
		}
		return err
	}
	if l.input.resumable() {
		if err := removeProgress(l.progressName()); err != nil {
			return err
		}
	}
	l.meter.End(l.tally(), "done")
	return l.answer(l.tally())
}

// tally returns the progress at the last checkpoint.
func (l *loading) tally() shell.Tally {
	return shell.Tally{
		Rows: l.state.Rows, Bytes: l.state.Offset, Skipped: l.state.Skipped, Total: l.input.size,
	}
}

func (l *loading) progressName() string { return l.input.name + ".progress" }

// fileDigest returns a digest of the first and the last 64 KiB of the file's first offset bytes, to
// detect another file. A file that has only grown has the same digest.
func fileDigest(f *os.File, offset int64) (string, error) {
	const part = 64 << 10
	h := sha256.New()
	for _, at := range []int64{0, max(0, offset-part)} {
		section := io.NewSectionReader(f, at, min(part, offset-at))
		n, err := io.Copy(h, section)
		if err != nil {
			return "", err
		}
		if n < min(part, offset-at) {
			return "", io.ErrUnexpectedEOF
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
