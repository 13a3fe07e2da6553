package bulk

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/pbjson"
	"github.com/percolator-go/percolator/internal/txn"
)

// `export` writes the rows of one snapshot, which a lease keeps readable.

// standardStream is the FILE argument for standard input or output.
const standardStream = "-"

// An export renews a lease that keeps its snapshot readable. The lease is short, so that
// a dead export does not pin history for long, but leaves time to run it again.
const (
	exportLease = time.Minute
	exportRenew = exportLease / 3
	// exportBackoff is the pause after ErrOverloaded.
	exportBackoff = 100 * time.Millisecond
)

// bulkFlags are the common flags of load and export.
type bulkFlags struct {
	restart bool
	quiet   bool
	// checkpoint is the time between syncs of data and progress. It limits the work that
	// is repeated after a crash.
	checkpoint time.Duration
}

// register adds the flags.
func (f *bulkFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.restart, "restart", false, "start over, ignoring the progress of an earlier run")
	flags.BoolVar(&f.quiet, "quiet", false, "do not print progress")
	flags.DurationVar(&f.checkpoint, "checkpoint", time.Second,
		"time between two writes of the progress file")
}

// ExportCommand writes FILE.part and renames it at the end, so that FILE is complete or
// absent.
func ExportCommand(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export TABLE [FILE|-]",
		Short: "Write the rows of a table to a file as JSON lines, from one snapshot",
		Long: `Write the rows of a table in row order, one JSON object a line, as
` + "`load`" + ` reads them:

  {"row":"bob","columns":{"balance":"10","photo":{"base64":"/9j/"}}}

Rows and values are text where they are UTF-8, else marked base64; columns whose names are not
UTF-8 stand in "base64_columns". All of it is one snapshot, of now or of --at, which is kept
readable while the export runs.

Rows are written to FILE.part, which is renamed to FILE at the end. Running the same command again
resumes an interrupted export at the same snapshot; FILE.progress records the position.
The command fails if that snapshot has become older than the cluster's history;
--restart then starts over. Without FILE, or with -, rows go to standard output.

With -o json a summary is printed when FILE is complete.`,
		Example: "export bank bank.jsonl\n" +
			"export bank --prefix b - | wc -l\n" +
			"export bank old.jsonl --at 5m --restart",
	}
	in, within := shell.AddInput(cmd), shell.AddRange(cmd)
	run := &export{token: []byte(rand.Text()), at: shell.AddAt(cmd)}
	run.bulkFlags.register(cmd)
	columns := cmd.Flags().StringArray("column", nil, "only this column; repeatable")
	cmd.Flags().BoolVar(&run.overwrite, "overwrite", false, "overwrite an existing FILE")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		rows, bounds, err := within.Rows(args[0], in)
		if err != nil {
			return err
		}
		names, err := in.All(*columns)
		if err != nil {
			return err
		}
		if run.name = fileArgument(args); run.name == "" {
			return shell.Usagef(cmd, "the name FILE is empty")
		}
		run.rows, run.columns = rows, shell.ColumnsOf(args[0], names)
		run.state = exportState{
			job:    job{Version: 1, Table: args[0]},
			Prefix: pbjson.Bytes(bounds[0]), From: pbjson.Bytes(bounds[1]), Before: pbjson.Bytes(bounds[2]),
		}
		for _, name := range names {
			run.state.Columns = append(run.state.Columns, pbjson.Bytes(name))
		}
		return d.Conn.RunLong(cmd, run.run)
	}
	return d.WithClient(cmd)
}

// fileArgument returns the argument FILE of a command with the arguments TABLE [FILE|-], - by default.
func fileArgument(args []string) string {
	if len(args) < 2 {
		return standardStream
	}
	return args[1]
}

// exportState is the content of FILE.progress: the request, and how much of FILE.part is
// durable.
type exportState struct {
	job

	Prefix  pbjson.Bytes   `json:"prefix,omitempty"`
	From    pbjson.Bytes   `json:"from,omitempty"`
	Before  pbjson.Bytes   `json:"before,omitempty"`
	Columns []pbjson.Bytes `json:"columns,omitempty"`
	TS      uint64         `json:"ts"`            // the snapshot
	Row     *pbjson.Bytes  `json:"row,omitempty"` // the last one written; nil: none yet
	Rows    int64          `json:"rows"`
	Bytes   int64          `json:"bytes"` // durable ones of FILE.part; resuming truncates to them
}

// sameRequest reports whether the state belongs to the same request.
func (s *exportState) sameRequest(want *exportState) bool {
	return s.isOf(want.job) && s.Prefix == want.Prefix && s.From == want.From && s.Before == want.Before &&
		slices.Equal(s.Columns, want.Columns)
}

// export is one run of the command. Rows go to FILE.part, progress to FILE.progress.
type export struct {
	*shell.Session
	bulkFlags
	name      string // FILE; standardStream: rows go to standard output, and nothing is remembered
	at        *string
	overwrite bool
	rows      percolator.RowRange
	columns   []percolator.Column // none: all

	state  exportState // the request, and the progress as written, in part not yet durable
	part   *os.File    // nil: standard output
	w      *bufio.Writer
	meter  *shell.Meter
	parts  shell.Extent
	saved  time.Time // when state was made durable
	leased time.Time // when the lease was renewed
	token  []byte    // of the lease, needed to release it
}

// run exports over one session.
func (e *export) run(ctx context.Context, s *shell.Session) (err error) {
	e.Session = s
	if e.state.Cluster, e.state.TableID, err = s.Identify(ctx, e.state.Table); err != nil {
		return err
	}
	e.w = bufio.NewWriterSize(e.Out.Raw, 1<<20)
	if e.name != standardStream {
		// Lock FILE.part before opening the snapshot: a second process with the same FILE fails
		// here, before it changes this one's lease, which has the same name.
		if err := e.open(); err != nil {
			return err
		}
		defer func() { _ = e.part.Close() }()
		e.w.Reset(e.part)
	}
	snapshot, err := e.snapshot(ctx)
	if err != nil {
		return err
	}
	return e.write(ctx, snapshot)
}

// open resumes an interrupted export to FILE, or begins one.
func (e *export) open() (err error) {
	there := false
	if !e.restart { // with --restart an old state may be damaged
		var old exportState
		if there, err = loadProgress(e.progressName(), &old); err != nil {
			return err
		}
		// Halves of two different exports would make a file that only looks complete.
		if there && !old.sameRequest(&e.state) {
			return shell.WithHint(fmt.Errorf(
				"%s belongs to another export (table %s), of a different cluster, table, range "+
					"or columns", e.progressName(), inspect.Printable(old.Table)),
				"run the command of that export to resume it, or pass --restart to start this one over")
		}
		if there {
			e.state = old
		}
	}
	if !there && !e.overwrite {
		if _, err := os.Stat(e.name); err == nil {
			return shell.WithHint(fmt.Errorf("%s already exists", e.name),
				"choose another FILE, or pass --overwrite to replace it when the export completes")
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	e.part, err = openPart(e.partName(), e.state.Bytes)
	return err
}

func (e *export) partName() string     { return e.name + ".part" }
func (e *export) progressName() string { return e.name + ".progress" }

// snapshot opens the snapshot of the interrupted export, or a new one.
func (e *export) snapshot(ctx context.Context) (*percolator.Snapshot, error) {
	if e.state.TS == 0 {
		return e.OpenSnapshot(ctx, *e.at)
	}
	if *e.at != "" {
		return nil, shell.Usagef(nil, "--at: the export in %s resumes at its original snapshot %d; "+
			"omit --at, or pass --restart", e.partName(), e.state.TS)
	}
	e.Out.Note("resuming after %d rows, at the snapshot of %s UTC", e.state.Rows,
		inspect.Clock(mvcc.Timestamp(e.state.TS)))
	return e.DB.SnapshotAt(ctx, percolator.Timestamp(e.state.TS))
}

// write scans and writes the remaining rows and completes the export.
func (e *export) write(ctx context.Context, snapshot *percolator.Snapshot) error {
	defer func() { _ = snapshot.Close() }()
	e.state.TS = uint64(snapshot.StartTS())
	e.meter = e.Out.NewMeter("export", e.tally(), e.quiet)
	e.parts = e.rangeExtent(ctx)
	// Acquire the lease before the first row: this fails if the snapshot is no longer readable.
	if err := e.lease(ctx, exportLease); err != nil {
		return err
	}
	// Release the lease also after a failure: the next run acquires a new one. After a kill the
	// lease expires.
	defer func() { _ = e.lease(context.WithoutCancel(ctx), 0) }()
	// From here on FILE.progress contains the snapshot, even if no row follows.
	if err := e.save(); err != nil {
		return err
	}
	err := e.scan(ctx, snapshot)
	// Save also after a failure, so that the next run does not write these rows again.
	if saving := e.save(); err == nil {
		err = saving
	}
	if err != nil {
		return e.explain(err)
	}
	if err := e.finish(); err != nil {
		return err
	}
	e.meter.End(e.tally(), fmt.Sprintf("snapshot %d", e.state.TS))
	return e.summary()
}

// scan writes the remaining rows, and retries while nodes are overloaded, at most 100 times without
// a new row.
func (e *export) scan(ctx context.Context, snapshot *percolator.Snapshot) error {
	const patience = 100
	for tries := 0; ; tries++ {
		before := e.state.Rows
		err := e.scanOnce(ctx, snapshot)
		if e.state.Rows > before {
			tries = 0
		}
		if !errors.Is(err, percolator.ErrOverloaded) || tries == patience {
			return err
		}
		if err := txn.Sleep(ctx, exportBackoff); err != nil {
			return err
		}
	}
}

// scanOnce writes row after row: a row never spans two tablets, and its cells come one
// after the other.
func (e *export) scanOnce(ctx context.Context, snapshot *percolator.Snapshot) error {
	rows := e.rows
	if e.state.Row != nil { // start at the smallest row after e.state.Row
		rows = rows.From(string(*e.state.Row) + "\x00")
	}
	// A row is known to be complete only when the next one begins.
	var row []percolator.Cell
	lines := newRowWriter()
	for cell, err := range snapshot.Scan(ctx, rows, e.columns...) {
		if err != nil {
			return err
		}
		if len(row) > 0 && row[0].Row != cell.Row {
			if err := e.row(ctx, lines, row); err != nil {
				return err
			}
			row = row[:0]
		}
		row = append(row, cell)
	}
	if len(row) == 0 {
		return nil
	}
	return e.row(ctx, lines, row)
}

// row writes one row, and saves progress and renews the lease when due.
func (e *export) row(ctx context.Context, lines *rowWriter, cells []percolator.Cell) error {
	line, err := lines.append(cells)
	if err != nil {
		return err
	}
	if _, err := e.w.Write(line); err != nil {
		return err
	}
	name := pbjson.Bytes(cells[0].Row)
	e.state.Row, e.state.Rows, e.state.Bytes = &name, e.state.Rows+1, e.state.Bytes+int64(len(line))
	e.meter.Show(e.tally())
	now := time.Now()
	if now.Sub(e.leased) > exportRenew {
		if err := e.lease(ctx, exportLease); err != nil {
			return err
		}
	}
	if now.Sub(e.saved) > e.checkpoint {
		return e.save()
	}
	return nil
}

// save makes the written rows durable, then the state that counts them.
func (e *export) save() error {
	if err := e.w.Flush(); err != nil || e.part == nil {
		return err
	}
	err := e.part.Sync()
	if err == nil {
		err = saveProgress(e.progressName(), e.state)
	}
	// Read the time after the save: otherwise a disk slower than --checkpoint would be synced for
	// every row.
	e.saved = time.Now()
	return err
}

// finish turns FILE.part, which is complete and durable, into FILE. The progress goes first: if
// it outlived FILE.part, it would count rows that are not there. After a crash between the two
// steps the next run starts over.
func (e *export) finish() error {
	if e.part == nil {
		return nil
	}
	if err := removeProgress(e.progressName()); err != nil {
		return err
	}
	if err := os.Rename(e.partName(), e.name); err != nil {
		return err
	}
	return syncDir(e.name)
}

// lease keeps the snapshot readable for ttl, even if this process dies; 0 releases it. It
// ignores every failure of the request, since history is kept for its usual time without a
// lease, and fails only if the cluster answers that the snapshot is gone.
func (e *export) lease(ctx context.Context, ttl time.Duration) error {
	// Set the time even if the request fails, so that a cluster without leases is not asked for
	// every row.
	e.leased = time.Now()
	ctx, cancel := context.WithTimeout(ctx, e.Conn.Timeout)
	defer cancel()
	request := &pb.HoldHistoryRequest{
		Holder: "export " + e.holder(), Token: e.token, Oldest: e.state.TS,
		TtlMs: uint32(ttl.Milliseconds()),
	}
	if ttl == 0 {
		request.Oldest = 0
	}
	answer, err := e.Transport.HoldHistory(ctx, request)
	if err != nil {
		return nil //nolint:nilerror // the scan fails if the snapshot becomes unreadable
	}
	if ttl > 0 && answer.GetBound() > e.state.TS {
		return e.explain(percolator.ErrSnapshotTooOld)
	}
	return nil
}

// holder returns the name of this export's lease, which operators see. A lease of the same name
// that a killed run has left expires by itself.
func (e *export) holder() string {
	return fmt.Sprintf("%d of table %d", e.state.TS, e.state.TableID)
}

// explain adds how to continue after an error: run the command again, or start over if the snapshot is
// no longer readable.
func (e *export) explain(err error) error {
	if e.part == nil {
		return err
	}
	if !errors.Is(err, percolator.ErrSnapshotTooOld) {
		return e.Conn.WithResumeHint(err, fmt.Sprintf("%d rows", e.state.Rows))
	}
	return shell.WithHint(coded.Errorf("", "%s was started at the snapshot of %s UTC: %w", e.partName(),
		inspect.Clock(mvcc.Timestamp(e.state.TS)), err),
		"--restart starts a new one; `cluster set history=…` keeps history longer")
}

// tally returns the export's progress. The total number of rows is unknown.
func (e *export) tally() shell.Tally {
	t := shell.Tally{Rows: e.state.Rows, Bytes: e.state.Bytes, Tablets: len(e.parts)}
	if e.state.Row != nil {
		t.Passed = e.parts.Passed(string(*e.state.Row) + "\x00")
	}
	return t
}

// rangeExtent returns the tablets of the exported rows.
func (e *export) rangeExtent(ctx context.Context) shell.Extent {
	w := &e.state
	all := e.Extent(ctx, mvcc.Span{
		Table: mvcc.TableID(w.TableID), Start: string(max(w.Prefix, w.From)), End: string(w.Before),
		HasEnd: w.Before != "",
	})
	// Omit tablets that begin after the last row with the prefix.
	return slices.DeleteFunc(all, func(part mvcc.Span) bool {
		return !strings.HasPrefix(part.Start, string(w.Prefix))
	})
}

// summary prints the command's answer in JSON, unless the rows went to standard output.
func (e *export) summary() error {
	if !e.Out.JSON() || e.name == standardStream {
		return nil
	}
	return e.Out.Object(struct {
		File  string `json:"file"`
		Rows  int64  `json:"rows"`
		Bytes int64  `json:"bytes"`
		TS    uint64 `json:"ts"`
	}{e.name, e.state.Rows, e.state.Bytes, e.state.TS})
}
