package txn

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// Bounds of what is learned, and the scores of a guess: a column that was read later
// gains one, one that was fetched in vain loses two, so that a guess that is right less
// than two times in three is dropped.
const (
	maxPatterns    = 1024
	maxGuesses     = 8
	maxTracedRows  = 64
	guessFrom      = 2
	maxGuessScore  = 6
	guessMissCosts = 2
)

// An observer reads much the same columns of each row it runs for, one after the other,
// and each of those reads is a round trip. Two cells of one row cost about as much as
// one, so the client guesses what will be read later (§2.5: with a cache, a tenth of the
// reads).

// prefetcher learns, for each transaction name and column, which other columns of the row
// are read after it.
type prefetcher struct {
	some     atomic.Bool // there have been patterns; until then nobody need wait for mu
	mu       sync.Mutex
	patterns map[patternKey]*pattern
}

type patternKey struct {
	name   string
	table  mvcc.TableID
	column string
}

// pattern is what may follow one column: a few columns with their scores.
type pattern struct{ columns []guess }

type guess struct {
	column string
	score  int // above 0; asked for from guessFrom on
}

// predict returns the columns to ask for together with the key's, which is read first of its row.
func (p *prefetcher) predict(k patternKey) []string {
	if !p.some.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.patterns[k]
	if known == nil {
		return nil
	}
	var out []string
	for _, g := range known.columns {
		if g.score >= guessFrom {
			out = append(out, g.column)
		}
	}
	return out
}

// learn updates the patterns by what a transaction read of one row.
func (p *prefetcher) learn(name string, r *tracedRow) {
	if len(r.later) == 0 && len(r.guessed) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k := patternKey{name, r.table, r.first}
	known := p.patterns[k]
	if known == nil {
		if len(p.patterns) >= maxPatterns {
			clear(p.patterns) // begin again: what matters is soon learned anew
		}
		known = &pattern{}
		p.patterns[k] = known
		p.some.Store(true)
	}
	// What was read later counts whether it was guessed or not: a guess that is right
	// keeps its score up.
	for _, column := range r.later {
		known.add(column, 1)
	}
	for _, column := range r.guessed {
		if !slices.Contains(r.later, column) {
			known.add(column, -guessMissCosts)
		}
	}
}

// add changes a column's score, and removes the column if that falls to zero.
func (p *pattern) add(column string, points int) {
	for i := range p.columns {
		if g := &p.columns[i]; g.column == column {
			if g.score = min(g.score+points, maxGuessScore); g.score <= 0 {
				p.columns = slices.Delete(p.columns, i, i+1)
			}
			return
		}
	}
	if points > 0 && len(p.columns) < maxGuesses {
		p.columns = append(p.columns, guess{column, points})
	}
}

// prefetchLog is what one transaction has read, row by row. Its reader's mu guards it.
type prefetchLog struct {
	rows []tracedRow
	room [1]tracedRow // for the first
}

type tracedRow struct {
	table   mvcc.TableID
	row     string
	first   string   // the column read first
	later   []string // the columns read after it
	guessed []string // the columns asked for with it
}

// note records that the cell is read, and returns what to ask for in the same message.
func (l *prefetchLog) note(r *reader, cell mvcc.Cell) []string {
	if cell.Class != mvcc.ClassData {
		return nil
	}
	for i := range l.rows {
		row := &l.rows[i]
		if row.table != cell.Table || row.row != cell.Row {
			continue
		}
		if cell.Column != row.first && len(row.later) < maxGuesses &&
			!slices.Contains(row.later, cell.Column) {
			row.later = append(row.later, cell.Column)
		}
		return nil
	}
	// A transaction that reads very many rows has shown its pattern by the first of them.
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

// finish learns from what was read.
func (l *prefetchLog) finish(r *reader) {
	for i := range l.rows {
		r.c.learned.learn(r.name, &l.rows[i])
	}
	l.rows = nil
}
