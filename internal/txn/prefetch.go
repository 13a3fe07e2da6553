package txn

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// Bounds of the learned patterns, and the scores of guesses: a column that was read later
// gains one, one that was fetched in vain loses two, so that a guess that is right less than
// two times in three is dropped.
const (
	maxPatterns    = 1024
	maxGuesses     = 8
	maxTracedRows  = 64
	maxExpected    = 32 // rows
	guessFrom      = 2
	maxGuessScore  = 6
	guessMissCosts = 2
)

// An observer reads similar columns of each row that it runs for, one after the other, and
// each read is a round trip. Two cells of one row cost about as much as one, so the client
// guesses the later reads (§2.5: with a cache, a tenth of the reads). An observer's run also says
// which rows it is for (Expect): what runs of its name read there travels with its first read.

// prefetcher learns, for each transaction name and column, which other columns of the row
// are read after it.
type prefetcher struct {
	some     atomic.Bool // a pattern was learned; until then readers skip mu
	mu       sync.Mutex
	patterns map[patternKey]pattern
}

type patternKey struct {
	name   string
	table  mvcc.TableID
	column string
}

// pattern holds the columns likely to be read after one column, with their scores.
type pattern []guess

type guess struct {
	column string
	score  int // above 0; prefetched from guessFrom on
}

// predict returns the columns to prefetch with the key's column, the first one read of its
// row.
func (p *prefetcher) predict(k patternKey) []string {
	if !p.some.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, g := range p.patterns[k] {
		if g.score >= guessFrom {
			out = append(out, g.column)
		}
	}
	return out
}

// learn updates the patterns with a transaction's reads of one row.
func (p *prefetcher) learn(name string, r *tracedRow) {
	if len(r.later) == 0 && len(r.guessed) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k := patternKey{name, r.table, r.first}
	known, ok := p.patterns[k]
	if !ok {
		if len(p.patterns) >= maxPatterns {
			clear(p.patterns) // start over: frequent patterns are soon learned again
		}
		p.some.Store(true)
	}
	// Columns read later count whether they were guessed or not: a right guess keeps its
	// score.
	for _, column := range r.later {
		known.add(column, 1)
	}
	for _, column := range r.guessed {
		if !slices.Contains(r.later, column) {
			known.add(column, -guessMissCosts)
		}
	}
	p.patterns[k] = known
}

// add adds points to the column's score, and removes the column when its score reaches 0.
func (p *pattern) add(column string, points int) {
	for i := range *p {
		if g := &(*p)[i]; g.column == column {
			if g.score = min(g.score+points, maxGuessScore); g.score <= 0 {
				*p = slices.Delete(*p, i, i+1)
			}
			return
		}
	}
	if points > 0 && len(*p) < maxGuesses {
		*p = append(*p, guess{column, points})
	}
}

// prefetchLog records one transaction's reads by row. Its reader's mu guards it.
type prefetchLog struct {
	rows []tracedRow
	room [1]tracedRow // space for the first row
}

type tracedRow struct {
	table   mvcc.TableID
	row     string
	first   string   // the column read first; "" for a row announced by Expect
	later   []string // the columns read after it
	guessed []string // the columns prefetched with it
}

// Expect announces the rows that the transaction is for, before its first read. That read's message
// requests what transactions of the same name have read in such rows; rows beyond maxExpected are
// ignored.
func (r *reader) Expect(rows ...mvcc.Cell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.guesses
	for _, cell := range rows[:min(len(rows), maxExpected)] {
		if l.find(cell) == nil {
			l.rows = append(l.rows, tracedRow{table: cell.Table, row: cell.Row})
		}
	}
}

// take returns the cells to prefetch in expected rows with a read of the given cells, once for
// each row.
func (l *prefetchLog) take(r *reader, read []mvcc.Cell) (out []mvcc.Cell) {
	for i := range l.rows {
		row := &l.rows[i]
		if row.first != "" || row.guessed != nil {
			continue
		}
		row.guessed = []string{}
		for _, column := range r.c.learned.predict(patternKey{r.name, row.table, ""}) {
			row.guessed = append(row.guessed, column)
			cell := mvcc.Cell{Table: row.table, Row: row.row, Column: column}
			if !slices.Contains(read, cell) {
				out = append(out, cell)
			}
		}
	}
	return out
}

func (l *prefetchLog) find(cell mvcc.Cell) *tracedRow {
	for i := range l.rows {
		if row := &l.rows[i]; row.row == cell.Row && row.table == cell.Table {
			return row
		}
	}
	return nil
}

// learnFrom records the read of the cell if its row is recorded, and reports whether it is.
func (l *prefetchLog) learnFrom(cell mvcc.Cell) bool {
	row := l.find(cell)
	if row != nil && cell.Column != row.first && cell.Class == mvcc.ClassData &&
		len(row.later) < maxGuesses && !slices.Contains(row.later, cell.Column) {
		row.later = append(row.later, cell.Column)
	}
	return row != nil
}

// note records the read of the cell, and returns the columns to prefetch in the same message.
func (l *prefetchLog) note(r *reader, cell mvcc.Cell) []string {
	if cell.Class != mvcc.ClassData || l.learnFrom(cell) {
		return nil
	}
	// The first rows of a large transaction are enough to learn its pattern.
	if len(l.rows) >= maxTracedRows {
		return nil
	}
	if l.rows == nil {
		l.rows = l.room[:0]
	}
	guessed := r.c.learned.predict(patternKey{r.name, cell.Table, cell.Column})
	l.rows = append(l.rows, tracedRow{
		table: cell.Table, row: cell.Row, first: cell.Column, guessed: guessed,
	})
	return guessed
}

// finish learns from the recorded reads.
func (l *prefetchLog) finish(r *reader) {
	for i := range l.rows {
		r.c.learned.learn(r.name, &l.rows[i])
	}
	l.rows = nil
}
