package bulk

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// The load command, and the reading and checking of lines; loadrun.go writes them.

// A transaction of load ends after loadBatchRows rows, the default of --batch, or after the row
// with which it has loadBatchBytes bytes. Larger ones are no faster and conflict more often.
const (
	loadBatchRows  = 64
	loadBatchBytes = 512 << 10
)

// loadFlags are the flags of load.
type loadFlags struct {
	bulkFlags
	workers int // concurrent transactions
	backlog int // see LoaderConfig.Backlog
	batch   int // maximum rows in a transaction
	skipBad int // bad lines that the whole file may have, those of earlier runs included
	maxLine int // in bytes; limits memory
	dryRun  bool
	bulk    bool
	notify  bool
}

// LoadCommand returns the command that writes the cells in a file. It does not change other rows and
// columns.
func LoadCommand(d *shell.Deps) *cobra.Command {
	l := &loading{out: d.Out, conn: d.Conn, busy: map[string]int{}}
	cmd := &cobra.Command{
		Use:   "load TABLE [FILE|-]",
		Short: "Write the rows of a file of JSON lines into a table",
		Long: `Write rows from a file with one JSON object a line, as ` + "`export`" + ` writes
them:

  {"row":"bob","columns":{"balance":"10","photo":{"base64":"/9j/"},"debt":null}}

Rows and values are text, numbers, which are text as they are written, or bytes as
{"base64": "…"}; columns whose names are not UTF-8 stand
in "base64_columns", named in base64. null deletes the cell. Columns that are not named stay as
they are. If several lines name one row, the last one wins.

Each row is written in one transaction, together with neighbouring rows. Running the same command
again resumes an interrupted load: FILE.progress records the position up to which every line is
committed, and the few rows after it are written again. A load slows down when observers cannot
keep up with it.

An invalid line ends the load unless --skip-bad allows it; both report the line.
--dry-run checks the file without contacting a node. Without FILE, or with -, rows come from standard
input: the load cannot be resumed, and progress shows the rows read, not those left.

--bulk loads into an empty table, without transactions. The lines must be in the order of their
rows, as ` + "`export`" + ` and ` + "`LC_ALL=C sort`" + ` write them, and name each row once. All rows become
visible together when the load is complete; until then the table cannot be opened, and
` + "`table drop`" + ` abandons the load. Reads as of an earlier time are refused afterwards. Observers
run for the rows only with --notify, after all of them are loaded. --bulk needs the role operator.`,
		Example: "load bank bank.jsonl\n" +
			"load bank bank.jsonl --dry-run\n" +
			"load bank - --skip-bad 10 < bank.jsonl\n" +
			"load bank bank.jsonl --bulk",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if l.workers < 1 || l.batch < 1 || l.skipBad < 0 || l.maxLine < 1 {
				return shell.Usagef(cmd, "--workers, --batch and --max-line must be at least 1, "+
					"--skip-bad at least 0")
			}
			if flag := l.foreignFlag(cmd.Flags().Changed); flag != "" {
				return shell.Usagef(cmd, "--%s and --bulk=%t exclude each other", flag, l.bulk)
			}
			// Open the file before connecting, because a wrong name is the most common mistake.
			if l.input, err = openInput(fileArgument(args), d.App.Stdin); err != nil {
				return err
			}
			defer func() { _ = l.input.close() }()
			if l.dryRun {
				return l.check(cmd.Context())
			}
			if l.table = args[0]; !l.bulk {
				return d.Conn.RunLong(cmd, l.run)
			}
			return d.Conn.RunLong(cmd, func(ctx context.Context, s *shell.Session) error {
				return l.runBulk(ctx, s, cmd.Flags().Changed("notify"))
			})
		},
	}
	l.bulkFlags.register(cmd)
	f, flags := &l.loadFlags, cmd.Flags()
	flags.IntVar(&f.workers, "workers", 16, "concurrent transactions")
	flags.IntVar(&f.backlog, "backlog", percolator.DefaultLoaderBacklog,
		"wait while more notifications than this wait for observers; -1: never wait")
	flags.IntVar(&f.batch, "batch", loadBatchRows, "maximum rows in a transaction")
	flags.IntVar(&f.skipBad, "skip-bad", 0, "maximum number of bad lines to skip")
	flags.IntVar(&f.maxLine, "max-line", 64<<20, "maximum bytes of a line")
	flags.BoolVar(&f.bulk, "bulk", false, "load sorted rows into an empty table")
	flags.BoolVar(&f.notify, "notify", false, "with --bulk: have observers run for the rows when all are loaded")
	flags.BoolVar(&f.dryRun, "dry-run", false, "check the file, write nothing")
	return d.WithClient(cmd)
}

// loadInput is the input of a load, the argument FILE or standard input.
type loadInput struct {
	name string
	file *os.File // nil: standard input
	size int64    // 0: unknown
	from io.Reader
}

// openInput opens FILE.
func openInput(name string, stdin io.Reader) (*loadInput, error) {
	if name == standardStream {
		return &loadInput{name: name, from: stdin}, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, shell.WithHint(err, "name a file that can be read, or - for standard input")
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a directory", name)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	input := &loadInput{name: name, file: file, from: file}
	if info.Mode().IsRegular() { // a named pipe has no size and can be read only once
		input.size = info.Size()
	}
	return input, nil
}

// resumable reports whether the input can be read again, and so continued after a crash.
func (i *loadInput) resumable() bool { return i.file != nil && i.size > 0 }

func (i *loadInput) close() error {
	if i.file == nil {
		return nil
	}
	return i.file.Close()
}

// lineReader reads lines of bounded length and records its position.
type lineReader struct {
	from   *bufio.Reader
	max    int
	offset int64 // after the last line read
	line   int64 // number of the last line read, from 1
	text   []byte
}

// next returns a line without its newline, valid until the next call, and io.EOF after the last one.
// It skips a line that is too long and reports it as bad.
func (l *lineReader) next() ([]byte, error) {
	l.text = l.text[:0]
	size := 0
	for {
		part, err := l.from.ReadSlice('\n')
		size += len(part)
		// Keep only the length of a line that is too long.
		if size <= l.max+1 {
			l.text = append(l.text, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && size == 0:
			return nil, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		}
		// The last line of a file counts even without a newline.
		l.offset += int64(size)
		l.line++
		if size > l.max+1 {
			return nil, coded.Errorf("", "%w: %d bytes, over --max-line", errBadLine, size)
		}
		if l.line == 1 {
			return trimNewline(bytes.TrimPrefix(l.text, byteOrderMark)), nil
		}
		return trimNewline(l.text), nil
	}
}

// byteOrderMark is the first bytes of UTF-8 files of some programs.
var byteOrderMark = []byte("\xef\xbb\xbf")

// trimNewline removes "\n" or "\r\n" from the end of a line.
func trimNewline(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}

// rowReader reads rows and skips empty lines; a line of blanks is bad.
type rowReader struct {
	lines  lineReader
	plain  plainParser
	limits mvcc.Limits
}

func newRowReader(from io.Reader, maxLine int) *rowReader {
	return &rowReader{
		lines:  lineReader{from: bufio.NewReaderSize(from, 1<<20), max: maxLine},
		limits: mvcc.DefaultLimits(),
	}
}

// next reads a row. An error that wraps errBadLine concerns the line just read, and reading may
// continue; io.EOF is the end.
func (r *rowReader) next() (*rowCells, error) {
	for {
		text, err := r.lines.next()
		if err != nil {
			return nil, err
		}
		if len(text) == 0 {
			continue
		}
		if row, ok := r.plain.parse(text, r.limits); ok {
			return row, nil
		}
		return parseRow(text, r.limits)
	}
}

// check implements --dry-run: it reads the whole file and prints the first bad lines.
func (l *loading) check(ctx context.Context) error {
	const named = 10
	ctx, end := l.conn.Interruptible(ctx)
	defer end()
	rows := newRowReader(l.input.from, l.maxLine)
	meter := l.out.NewMeter("check", shell.Tally{}, l.quiet)
	t := shell.Tally{Total: l.input.size}
	var last *rowCells
	for {
		row, err := rows.next()
		if err == nil && l.bulk {
			if last != nil && row.row <= last.row {
				err = coded.Errorf("", "%w: row %s follows row %s, and --bulk needs ascending rows", errBadLine,
					inspect.Shortened(row.row, inspect.ValueWidth), inspect.Shortened(last.row, inspect.ValueWidth))
			}
			last = row
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err = cmp.Or(ctx.Err(), err); err != nil && !errors.Is(err, errBadLine) {
			return l.conn.CutShort(ctx, err)
		}
		// Count all bad lines but print only the first few: a file of bad lines must not scroll by
		// for minutes.
		t.Bytes = rows.lines.offset
		if err == nil {
			t.Rows++
		} else if t.Skipped++; t.Skipped <= named {
			l.out.Note("%s line %d: %v", l.input.name, rows.lines.line, err)
		}
		meter.Show(t)
	}
	meter.End(t, "nothing written")
	if err := l.answer(t); err != nil {
		return err
	}
	if t.Skipped > int64(l.skipBad) {
		return shell.WithHint(fmt.Errorf("%s has %d bad lines: a load would stop, because --skip-bad allows only %d",
			l.input.name, t.Skipped, l.skipBad),
			"correct them, or pass --skip-bad to skip them")
	}
	return nil
}

// answer prints the command's result.
func (l *loading) answer(t shell.Tally) error {
	text, args := "%d rows loaded, %d bad lines skipped", []any{t.Rows, t.Skipped}
	if l.dryRun {
		text = "%d rows are well-formed, %d lines are bad"
	}
	return l.out.Answer(struct {
		File    string `json:"file"`
		Rows    int64  `json:"rows"`
		Bytes   int64  `json:"bytes"`
		Skipped int64  `json:"skipped"`
		DryRun  bool   `json:"dry_run,omitempty"`
	}{l.input.name, t.Rows, t.Bytes, t.Skipped, l.dryRun}, text, args...)
}

// permanent reports whether the database will always refuse the row, so that a retry cannot succeed.
func permanent(err error) bool {
	return errors.Is(err, percolator.ErrTooLarge) || errors.Is(err, percolator.ErrInvalid) ||
		errors.Is(err, percolator.ErrNotifyOnly)
}
