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
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
)

// One run of load. The reader puts batches into a queue; workers of a Loader commit them
// in any order and call back on their own goroutines, under the mutex of loading; what is
// committed without a gap from the beginning is the progress.

// loadState is the content of FILE.progress: up to where everything is committed.
type loadState struct {
	Version int    `json:"version"`
	Cluster string `json:"cluster"`
	Table   string `json:"table"`
	TableID uint32 `json:"table_id"`
	// bytes of FILE whose lines are all committed, or passed over as bad
	Offset  int64 `json:"offset"`
	Line    int64 `json:"line"` // their number
	Rows    int64 `json:"rows"` // committed
	Skipped int64 `json:"skipped"`
	// of the file's first bytes and the last ones before Offset: is it still that file?
	Digest string `json:"digest"`
}

// loadBatch is one transaction's worth of lines, in the order of the file.
type loadBatch struct {
	rows   []*rowCells
	lines  []int64 // their numbers
	size   int
	offset int64 // behind its last line
	line   int64
	bad    int64 // lines passed over in it
	done   bool
}

// loading is one run of load.
type loading struct {
	out  *shell.Printer
	conn *shell.Connector
	loadFlags
	fail  context.CancelCauseFunc // ends everything, with the first failure
	db    *percolator.DB
	table string
	input *loadInput
	meter *shell.Meter

	mu      sync.Mutex
	moved   *sync.Cond     // a batch has ended
	state   loadState      // of the committed front
	batches []*loadBatch   // not in the front yet, in order
	busy    map[string]int // rows of transactions under way: two of one row must keep their order
	bad     int64          // bad lines in all, those of earlier runs too
	saved   time.Time
	saving  bool
}

// maxBatches limits the batches behind the front, so one slow transaction eventually
// stops the reader.
const maxBatches = 4096

// run loads the file. If it fails, the progress file says where to resume.
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
	l.meter = l.out.NewMeter("load", l.tally(), l.quiet)
	loader := s.DB.Loader(percolator.LoaderConfig{
		Workers: l.workers, Queue: l.workers, Backlog: l.backlog, Name: "load",
	})
	err := l.read(ctx, loader)
	if closing := loader.Close(); err == nil {
		err = closing
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause // what the reader met then was a consequence
	}
	return l.end(err)
}

// begin resumes an interrupted load of the same file, if there is one.
func (l *loading) begin(ctx context.Context, s *shell.Session) (err error) {
	l.state.Version = 1
	l.state.Table = l.table
	if l.state.Cluster, l.state.TableID, err = s.Identify(ctx, l.table); err != nil {
		return err
	}
	if !l.input.resumable() || l.restart {
		return nil // the old file is replaced at the first checkpoint
	}
	var old loadState
	there, err := loadCheckpoint(l.progressName(), &old)
	if err != nil || !there {
		return err
	}
	wrong := func(what string) error {
		return shell.WithHint(fmt.Errorf("%s %s", l.progressName(), what),
			"--restart loads all of the file; what is there already is written once more")
	}
	if old.Version != 1 || old.Cluster != l.state.Cluster || old.TableID != l.state.TableID {
		return wrong(fmt.Sprintf("is of a load into another table (%s) or cluster",
			shell.Printable(old.Table)))
	}
	// Lines that were counted must still be those lines: an offset into another file
	// would leave out what nobody loaded.
	digest, err := fileDigest(l.input.file, old.Offset)
	if err != nil || digest != old.Digest {
		return wrong("is of another file: what it counts as loaded has changed")
	}
	if _, err := l.input.file.Seek(old.Offset, io.SeekStart); err != nil {
		return err
	}
	l.state, l.bad = old, old.Skipped
	if old.Line > 0 {
		l.out.Note("resuming after line %d", old.Line)
	}
	return nil
}

// read cuts the file into batches and queues them.
func (l *loading) read(ctx context.Context, loader *percolator.Loader) error {
	rows := newRowReader(l.input.from, l.maxLine)
	rows.lines.offset, rows.lines.line = l.state.Offset, l.state.Line
	// An empty batch has an offset too, that of the line before it: zero would move the
	// front back.
	fresh := func() *loadBatch {
		return &loadBatch{offset: rows.lines.offset, line: rows.lines.line}
	}
	b := fresh()
	for {
		row, err := rows.next()
		switch {
		case errors.Is(err, io.EOF):
			b.offset, b.line = rows.lines.offset, rows.lines.line
			return l.submit(ctx, loader, b)
		case errors.Is(err, errBadLine):
			b.bad++
			if err := l.passOver(rows.lines.line, err); err != nil {
				// Load the good lines before the bad one, so that the next run begins
				// there.
				b.bad--
				return cmp.Or(l.submit(ctx, loader, b), err)
			}
		case err != nil:
			return err
		default:
			b.rows, b.lines, b.size = append(b.rows, row), append(b.lines, rows.lines.line),
				b.size+row.size()
		}
		b.offset, b.line = rows.lines.offset, rows.lines.line
		if len(b.rows) >= l.batch || b.size >= loadBatchBytes {
			if err := l.submit(ctx, loader, b); err != nil {
				return err
			}
			b = fresh()
		}
	}
}

// passOver counts a bad line and names it. It returns the error that ends the load if
// there are too many.
func (l *loading) passOver(line int64, why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bad++
	if l.bad > int64(l.skipBad) {
		return shell.WithHint(coded.Errorf("", "%s line %d: %w", l.input.name, line, why),
			fmt.Sprintf("mend the line and run the command again: it goes on where it was "+
				"(--skip-bad %d passes over it)", l.bad))
	}
	l.out.Note("skipped %s line %d: %v", l.input.name, line, why)
	return nil
}

// submit queues a batch once nothing under way touches its rows: workers commit in any
// order, and of two lines of one row the later one counts.
func (l *loading) submit(ctx context.Context, loader *percolator.Loader, b *loadBatch) error {
	l.mu.Lock()
	for ctx.Err() == nil && (len(l.batches) >= maxBatches || l.collides(b)) {
		l.moved.Wait()
	}
	if err := ctx.Err(); err != nil {
		l.mu.Unlock()
		return err
	}
	// In the order of the file, before it is queued: the front must not pass a batch that
	// it does not know of.
	l.batches = append(l.batches, b)
	for _, row := range b.rows {
		l.busy[row.row]++
	}
	l.mu.Unlock()
	if len(b.rows) == 0 {
		l.committed(b)
		return nil
	}
	return loader.LoadThen(ctx, b.buffer(l.table), func(err error) { l.ended(ctx, b, err) })
}

// collides reports whether a row of the batch is being written. The caller holds mu.
func (l *loading) collides(b *loadBatch) bool {
	for _, row := range b.rows {
		if l.busy[row.row] > 0 {
			return true
		}
	}
	return false
}

// buffer returns the batch's transaction. Of two lines of a row the later one counts.
func (b *loadBatch) buffer(table string) func(context.Context, *percolator.Tx) error {
	return func(_ context.Context, tx *percolator.Tx) error {
		for _, row := range b.rows {
			row.buffer(tx, table)
		}
		return nil
	}
}

// ended handles a transaction's outcome. It is called on the worker's goroutine.
func (l *loading) ended(ctx context.Context, b *loadBatch, err error) {
	switch {
	case err == nil:
	case errors.Is(err, percolator.ErrCommitUnknown):
		// Write the same values again. This attempt resolves the locks of the earlier one
		// first.
		err = l.db.Transact(ctx, b.buffer(l.table), percolator.Name("load"))
	case permanent(err):
		err = l.oneByOne(ctx, b)
	}
	if err != nil {
		l.fail(err) // the batch stays in the way of the front: the next run begins with it
		return
	}
	l.committed(b)
}

// oneByOne finds the rows that the repository refuses, and writes the others.
func (l *loading) oneByOne(ctx context.Context, b *loadBatch) error {
	// In order, since a row may be in the batch twice.
	good := b.rows[:0]
	for i, row := range b.rows {
		single := &loadBatch{rows: []*rowCells{row}}
		err := l.db.Transact(ctx, single.buffer(l.table), percolator.Name("load"))
		if err == nil {
			good = append(good, row)
			continue
		}
		if !permanent(err) {
			return err
		}
		b.bad++
		if err := l.passOver(b.lines[i], err); err != nil {
			return err
		}
		l.release(row)
	}
	b.rows = good
	return nil
}

// release allows other batches to write the row.
func (l *loading) release(row *rowCells) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free(row)
}

// free is release for callers that hold mu.
func (l *loading) free(row *rowCells) {
	if l.busy[row.row]--; l.busy[row.row] == 0 {
		delete(l.busy, row.row)
	}
}

// committed moves the front over all batches that have ended, and saves it every
// --checkpoint.
func (l *loading) committed(b *loadBatch) {
	l.mu.Lock()
	b.done = true
	for _, row := range b.rows {
		l.free(row)
	}
	for len(l.batches) > 0 && l.batches[0].done {
		first := l.batches[0]
		l.batches = l.batches[1:]
		l.state.Rows, l.state.Skipped = l.state.Rows+int64(len(first.rows)),
			l.state.Skipped+first.bad
		l.state.Offset, l.state.Line = first.offset, first.line
	}
	// One saves at a time, and not under mu: the others go on committing while it syncs.
	state, due := l.state, !l.saving && time.Since(l.saved) > l.checkpoint
	l.saving = l.saving || due
	l.moved.Broadcast()
	l.mu.Unlock()
	l.meter.Show(shell.Tally{
		Rows: state.Rows, Bytes: state.Offset, Skipped: state.Skipped, Total: l.input.size,
	})
	if !due {
		return
	}
	if err := l.save(state); err != nil {
		l.fail(err)
	}
	l.mu.Lock()
	// Taken after the save: a slow disk must not be busy with progress alone.
	l.saving, l.saved = false, time.Now()
	l.mu.Unlock()
}

// save writes the progress file.
func (l *loading) save(state loadState) (err error) {
	if !l.input.resumable() {
		return nil
	}
	if state.Digest, err = fileDigest(l.input.file, state.Offset); err != nil {
		return err
	}
	return saveCheckpoint(l.progressName(), state)
}

// end reports the result, after all workers have stopped. A complete load leaves no
// progress file.
func (l *loading) end(err error) error {
	if err == nil && len(l.batches) > 0 {
		// A batch that has not committed is not loaded.
		err = fmt.Errorf("%d batches have not ended", len(l.batches))
	}
	if err == nil {
		if l.input.resumable() {
			err = removeCheckpoint(l.progressName())
		}
		if err == nil {
			l.meter.End(l.tally(), "done")
			err = l.answer(l.tally())
		}
		return err
	}
	// No worker runs any more, so this state is final, and often ahead of the last
	// checkpoint.
	if saving := l.save(l.state); saving != nil {
		return errors.Join(err, saving)
	}
	l.meter.End(l.tally(), "stopped")
	if l.input.resumable() && !errors.As(err, new(*shell.HintError)) {
		return l.conn.WithResumeHint(err, fmt.Sprintf("line %d", l.state.Line))
	}
	return err
}

// tally returns the progress of the front.
func (l *loading) tally() shell.Tally {
	return shell.Tally{
		Rows: l.state.Rows, Bytes: l.state.Offset, Skipped: l.state.Skipped, Total: l.input.size,
	}
}

func (l *loading) progressName() string { return l.input.name + ".progress" }

// fileDigest tells whether a file is still the one whose first offset bytes were loaded:
// it takes the first and the last 64 KiB of them. A file that has only grown is the same.
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
