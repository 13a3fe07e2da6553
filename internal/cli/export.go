package cli

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// standardStream is how FILE names standard input or output.
const standardStream = "-"

// How an export keeps its snapshot readable: a lease that it renews, short enough not to
// pin history for long after a process that is gone, long enough to start it again.
const (
	exportLease = time.Minute
	exportRenew = exportLease / 3
	// exportBackoff is the rest after a refusal for overload.
	exportBackoff = 100 * time.Millisecond
)

// bulkFlags are what load and export share.
type bulkFlags struct {
	restart bool
	quiet   bool
	// checkpoint is the time between two syncs of data and progress: what is done once
	// more after a crash, at most.
	checkpoint time.Duration
}

// register adds the flags.
func (f *bulkFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.restart, "restart", false, "begin anew, whatever an earlier run has left")
	flags.BoolVar(&f.quiet, "quiet", false, "show no progress")
	flags.DurationVar(&f.checkpoint, "checkpoint", time.Second, "how often the progress file is renewed")
}

// exportCommand writes through a file of another name, so that FILE is there whole or not at all.
func (r *run) exportCommand() *cobra.Command {
	f, bulk := &scanFlags{}, &bulkFlags{}
	var columns []string
	var overwrite bool
	cmd := &cobra.Command{
		Use:   "export TABLE [FILE|-]",
		Short: "Write the rows of a table to a file as JSON lines, from one snapshot",
		Long: `Write the rows of a table in row order, one JSON object a line, as ` + "`load`" + ` reads them:

  {"row":"bob","columns":{"balance":"10","photo":{"base64":"/9j/"}}}

Rows and values are text where they are UTF-8, else marked base64; columns whose names are not UTF-8 stand in
"base64_columns". All of it is one snapshot, of now or of --at, which is kept readable while the export runs.

The rows go to FILE.part, which becomes FILE at the end. An export that was interrupted goes on where it was, at the same
snapshot, when the same command is run again: FILE.progress says where. If that snapshot has meanwhile become older than
the history that is kept, it says so, and --restart begins anew. Without FILE, or with -, rows go to standard output.

With -o json a summary goes to standard output when FILE is done.`,
		Example: r.example("export bank bank.jsonl", "export bank --prefix b - | wc -l", "export bank old.jsonl --at 5m --restart"),
		Args:    argsBetween(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := r.newExport(cmd, args, f, columns)
			if err != nil {
				return err
			}
			job.bulk, job.overwrite, job.at = bulk, overwrite, f.at
			return r.talkLong(cmd, job.run)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.prefix, "prefix", "", "only rows that begin so (--escape applies)")
	flags.StringVar(&f.from, "from", "", "only rows from this one on")
	flags.StringVar(&f.before, "before", "", "only rows before this one")
	flags.StringArrayVar(&columns, "column", nil, "only this column; repeatable")
	flags.BoolVar(&overwrite, "overwrite", false, "replace FILE if it is there")
	addAt(cmd, &f.at)
	bulk.register(cmd)
	return r.withInput(r.withClient(cmd))
}

// export is one run of the command.
type export struct {
	r         *run
	bulk      *bulkFlags
	table     string
	file      string // standardStream: rows go to standard output, and nothing is remembered
	at        string // --at, as it was given
	overwrite bool
	rows      percolator.RowRange
	columns   []percolator.Column // none: all
	want      exportState         // what a state that is gone on with must have been begun with

	state  exportState // as written, in part not yet durable
	out    *exportFile // nil: standard output
	w      *bufio.Writer
	meter  *meter
	saved  time.Time // when state was made durable
	leased time.Time // when the lease was renewed
	token  []byte    // of the lease: nobody else gives it back
}

// newExport reads the arguments.
func (r *run) newExport(cmd *cobra.Command, args []string, f *scanFlags, columns []string) (*export, error) {
	rows, err := r.rowRange(args[0], f)
	if err != nil {
		return nil, err
	}
	names, err := r.input.all(columns)
	if err != nil {
		return nil, err
	}
	e := &export{r: r, table: args[0], file: standardStream, rows: rows, token: []byte(rand.Text())}
	if len(args) > 1 {
		e.file = args[1]
	}
	if e.file == "" {
		return nil, usagef(cmd, "FILE is empty")
	}
	bounds, err := r.input.all([]string{f.prefix, f.from, f.before})
	if err != nil {
		return nil, err
	}
	e.want = exportState{
		Version: 1, Table: args[0], Prefix: jsonBytes(bounds[0]), From: jsonBytes(bounds[1]), Before: jsonBytes(bounds[2]),
	}
	for _, name := range names {
		e.want.Columns = append(e.want.Columns, jsonBytes(name))
		e.columns = append(e.columns, percolator.Column{Table: args[0], Name: name})
	}
	return e, nil
}

// run is the export, over a connection.
func (e *export) run(ctx context.Context, s *session) error {
	if err := e.identify(ctx, s); err != nil {
		return err
	}
	if e.file == standardStream {
		snapshot, err := openSnapshot(ctx, s.db, e.at)
		if err != nil {
			return err
		}
		e.state, e.w = e.want, bufio.NewWriterSize(e.r.App.Stdout, 1<<20)
		return e.write(ctx, s, snapshot)
	}
	// The file is taken before the snapshot: a second process must not move this one's lease.
	out, state, err := openExport(e.file, e.want, e.bulk.restart, e.overwrite)
	if err != nil {
		return err
	}
	defer func() { _ = out.close() }()
	if state.Done { // only the rest of its end was missing
		e.state = state
		return errors.Join(out.finish(), e.summary())
	}
	e.out, e.state, e.w = out, state, bufio.NewWriterSize(out.part, 1<<20)
	snapshot, err := e.snapshot(ctx, s)
	if err != nil {
		return err
	}
	return e.write(ctx, s, snapshot)
}

// identify notes which table of which cluster this is: a name alone may mean another one tomorrow.
func (e *export) identify(ctx context.Context, s *session) error {
	names, err := loadNames(ctx, s)
	if err != nil {
		return err
	}
	id, err := names.table(e.table)
	if err != nil {
		return err
	}
	status, err := s.transport.NodeStatus(ctx)
	if err != nil {
		return err
	}
	e.want.Cluster, e.want.TableID = status.GetClusterId(), uint32(id)
	return nil
}

// snapshot opens the one that the export has begun with, or a new one.
func (e *export) snapshot(ctx context.Context, s *session) (*percolator.Snapshot, error) {
	if e.state.TS == 0 {
		snapshot, err := openSnapshot(ctx, s.db, e.at)
		if err != nil {
			return nil, err
		}
		e.state.TS = uint64(snapshot.Timestamp())
		return snapshot, nil
	}
	if e.at != "" {
		return nil, usagef(nil, "--at: %s goes on at the snapshot %d that it was begun with; leave --at out, or give --restart", e.out.partName, e.state.TS)
	}
	e.r.note("going on after %d rows, at the snapshot of %s UTC", e.state.Rows, clock(mvcc.Timestamp(e.state.TS)))
	return s.db.SnapshotAt(ctx, percolator.Timestamp(e.state.TS))
}

// write scans and writes what is left, and ends the export.
func (e *export) write(ctx context.Context, s *session, snapshot *percolator.Snapshot) error {
	defer func() { _ = snapshot.Close() }()
	e.state.TS = uint64(snapshot.Timestamp())
	e.meter = e.r.newMeter("export", e.tally(), e.bulk.quiet)
	// Before the first row, and before it is known whether the snapshot is still there: a
	// lease that comes too late says so.
	if err := e.lease(ctx, s, exportLease); err != nil {
		return err
	}
	// Given back also after a failure: the next run takes it anew. After a kill it lapses
	// by itself.
	defer func() { _ = e.lease(context.WithoutCancel(ctx), s, 0) }()
	// From here on FILE.progress names the snapshot, also if not a single row follows.
	if err := e.save(); err != nil {
		return err
	}
	err := e.scan(ctx, s, snapshot)
	if e.out == nil {
		err = errors.Join(err, e.w.Flush())
	} else if saving := e.save(); err == nil { // after a failure too: what was written need not be written again
		err = saving
	}
	if err != nil {
		return e.explain(err)
	}
	if e.out != nil {
		if err := e.out.finish(); err != nil {
			return err
		}
	}
	e.meter.end(e.tally(), fmt.Sprintf("snapshot %d", e.state.TS))
	return e.summary()
}

// scan writes what is left, and bears with a node that has more to do than it can for a while.
func (e *export) scan(ctx context.Context, s *session, snapshot *percolator.Snapshot) error {
	const patience = 100
	for tries := 0; ; tries++ {
		before := e.state.Rows
		err := e.scanOnce(ctx, s, snapshot)
		if e.state.Rows > before {
			tries = 0
		}
		if !errors.Is(err, percolator.ErrOverloaded) || tries == patience {
			return err
		}
		if err := pause(ctx, exportBackoff); err != nil {
			return err
		}
	}
}

// scanOnce writes row after row: a row never spans two tablets, and its cells come one
// after the other.
func (e *export) scanOnce(ctx context.Context, s *session, snapshot *percolator.Snapshot) error {
	rows := e.rows
	if e.state.Row != nil { // the next row there can be
		rows = rows.From(string(*e.state.Row) + "\x00")
	}
	// A row is held until the next one begins: only then is it known to be whole.
	var row []percolator.Cell
	lines := newRowWriter()
	for cell, err := range snapshot.Scan(ctx, rows, e.columns...) {
		if err != nil {
			return err
		}
		if len(row) > 0 && row[0].Row != cell.Row {
			if err := e.row(ctx, s, lines, row); err != nil {
				return err
			}
			row = row[:0]
		}
		row = append(row, cell)
	}
	if len(row) == 0 {
		return nil
	}
	return e.row(ctx, s, lines, row)
}

// row writes one row, and now and then the progress and the lease.
func (e *export) row(ctx context.Context, s *session, lines *rowWriter, cells []percolator.Cell) error {
	line, err := lines.append(cells)
	if err != nil {
		return err
	}
	if _, err := e.w.Write(line); err != nil {
		return err
	}
	name := jsonBytes(cells[0].Row)
	e.state.Row, e.state.Rows, e.state.Bytes = &name, e.state.Rows+1, e.state.Bytes+int64(len(line))
	e.meter.show(e.tally())
	now := time.Now()
	if now.Sub(e.leased) > exportRenew {
		if err := e.lease(ctx, s, exportLease); err != nil {
			return err
		}
	}
	if now.Sub(e.saved) > e.bulk.checkpoint {
		return e.save()
	}
	return nil
}

// save makes what was written durable, and then the state that says so.
func (e *export) save() error {
	if e.out == nil {
		return nil
	}
	if err := e.w.Flush(); err != nil {
		return err
	}
	err := e.out.save(e.state)
	e.saved = time.Now() // after it: a disk that takes longer than --checkpoint must not be asked for every row
	return err
}

// lease keeps the snapshot readable, also over the death of this process for as long as
// the lease lasts; 0 gives it back. A cluster that keeps no leases keeps no less history
// for that.
func (e *export) lease(ctx context.Context, s *session, ttl time.Duration) error {
	// Also if it fails: the next try is due as late, so that a cluster without leases is
	// not asked for every row.
	e.leased = time.Now()
	ctx, cancel := context.WithTimeout(ctx, e.r.timeout)
	defer cancel()
	request := &pb.HoldHistoryRequest{
		Holder: "export " + e.holder(), Token: e.token, Oldest: e.state.TS, TtlMs: uint32(ttl.Milliseconds()),
	}
	if ttl == 0 {
		request.Oldest = 0
	}
	answer, err := s.transport.HoldHistory(ctx, request)
	if err != nil {
		return nil //nolint:nilerror // the scan says so if the snapshot goes; until then there is nothing amiss
	}
	if ttl > 0 && answer.GetBound() > e.state.TS {
		return e.explain(percolator.ErrSnapshotTooOld)
	}
	return nil
}

// holder names this export's lease for operators. An earlier run's of the same name ends
// by itself.
func (e *export) holder() string {
	return fmt.Sprintf("%d of table %d", e.state.TS, e.want.TableID)
}

// explain says how to go on after an error: again, or anew if the snapshot is gone.
func (e *export) explain(err error) error {
	if e.out == nil {
		return err
	}
	if !errors.Is(err, percolator.ErrSnapshotTooOld) {
		return e.r.again(err, fmt.Sprintf("%d rows", e.state.Rows))
	}
	return &hintError{
		err:  fmt.Errorf("%s was begun at the snapshot of %s UTC: %w", e.out.partName, clock(mvcc.Timestamp(e.state.TS)), err),
		hint: "--restart begins a new one; `start --history` keeps more",
	}
}

// tally is the export's progress. How much there will be nobody knows.
func (e *export) tally() tally { return tally{Rows: e.state.Rows, Bytes: e.state.Bytes} }

// summary is the command's answer in JSON. Standard output is taken if the rows went there.
func (e *export) summary() error {
	if e.r.output != outputJSON || e.file == standardStream {
		return nil
	}
	return e.r.object(struct {
		File  string `json:"file"`
		Rows  int64  `json:"rows"`
		Bytes int64  `json:"bytes"`
		TS    uint64 `json:"ts"`
	}{e.file, e.state.Rows, e.state.Bytes, e.state.TS})
}
