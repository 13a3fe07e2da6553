package expirer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// Turns of the job, on the actor's goroutine.

const (
	// turnTime is the time after which a turn begins no more transactions.
	turnTime = time.Second
	// backlog is the number of waiting notifications above which a turn does one transaction
	// only, after backlogWait.
	backlog     = 10_000
	backlogWait = 5 * time.Second
	listTimeout = 5 * time.Second
	stepTimeout = 30 * time.Second
	retry       = 5 * time.Second // after an error
	// The time between two passes of a rule is at least the rule's age divided by passShare, but
	// not less than minPass or more than maxPass.
	passShare        = 20
	minPass, maxPass = time.Second, time.Hour
	// settled is the time for which the search of a due cell waits, so that the cell is due by this
	// node's clock and by the oracle's.
	settled = 100 * time.Millisecond
)

// ruleKey identifies a rule. others is the rule of all columns that have no rule of their own.
type ruleKey struct {
	table  uint32
	column string
	others bool
}

// rule is the expiry of one column of one table, or of its other columns.
type rule struct {
	ruleKey
	name   string   // of the table
	except []string // if others is set: the columns that have rules of their own
	age    time.Duration
	// restored is the timestamp of the table's restore, which brings cells with old timestamps.
	restored uint64
	// due is the due time of the oldest known cell; next, not before due, is the time of the next
	// search.
	due, next time.Time
	// The pass under way: the row at which it continues, the timestamp of its first transaction (0
	// before that), and the timestamp of the oldest cell that it has not deleted.
	from          string
	began, oldest mvcc.Timestamp
	err           error // the error of the last attempt
}

// interval returns the least time between two passes of the rule.
func (r *rule) interval() time.Duration { return min(max(r.age/passShare, minPass), maxPass) }

// work is the job's state between turns.
type work struct {
	cfg    Config
	rules  map[ruleKey]*rule
	status board
}

func newWork(cfg Config) *work { return &work{cfg: cfg, rules: map[ruleKey]*rule{}} }

// turn deletes some of the expired cells, if there are any.
func (w *work) turn(ctx context.Context) time.Duration {
	if err := w.list(ctx); err != nil {
		return w.cfg.Pause // other parts of the node log that meta is unreachable
	}
	defer w.show()
	began := w.cfg.Now()
	most := turnTime
	if len(w.due(began)) > 0 && w.behind(ctx) {
		most = 0
	}
	worked := time.Duration(0)
	for {
		due := w.due(w.cfg.Now())
		if len(due) == 0 || ctx.Err() != nil {
			break
		}
		before := w.cfg.Now()
		w.step(ctx, due[0])
		if worked += max(w.cfg.Now().Sub(before), time.Millisecond); worked >= most {
			return worked
		}
	}
	pause := w.cfg.Pause
	for _, r := range w.rules {
		pause = min(pause, max(r.next.Sub(w.cfg.Now()), worked))
	}
	return max(pause, worked)
}

// behind waits up to backlogWait until at most backlog notifications wait, and reports whether more
// still do.
func (w *work) behind(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, backlogWait)
	defer cancel()
	return w.cfg.Client.AwaitBacklog(ctx, backlog, nil) != nil
}

// due returns the rules to work on, the one that is due longest first.
func (w *work) due(now time.Time) (due []*rule) {
	for _, r := range w.rules {
		if !now.Before(r.next) {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *rule) int { return a.next.Compare(b.next) })
	return due
}

// list reads the rules from the tables' records. A rule that has not changed keeps its pass, unless
// its table was restored since.
func (w *work) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	tables, err := w.cfg.Tables.Tables(ctx)
	if err != nil {
		return err
	}
	now, rules := w.cfg.Now(), map[ruleKey]*rule{}
	for _, t := range tables {
		if t.Restoring != nil {
			continue // cells that are being restored have old timestamps
		}
		for _, r := range rulesOf(t) {
			if have := w.rules[r.ruleKey]; have != nil && have.age == r.age && have.restored == r.restored &&
				slices.Equal(have.except, r.except) {
				have.name, r = r.name, have
			} else {
				// The lag of cells that have expired already counts from now.
				r.due, r.next = now, now
			}
			rules[r.ruleKey] = r
		}
	}
	w.rules = rules
	return nil
}

// rulesOf returns the rules of a table.
func rulesOf(t *pb.Table) (rules []*rule) {
	var named []string
	for _, c := range t.GetExpiry().GetColumns() {
		named = append(named, string(c.Column))
		if c.AfterMs != 0 {
			rules = append(rules, &rule{
				ruleKey: ruleKey{table: t.Id, column: string(c.Column)}, name: t.Name, age: millis(c.AfterMs),
				restored: t.Restored.GetAt(),
			})
		}
	}
	if ms := t.GetExpiry().GetAfterMs(); ms != 0 {
		rules = append(rules, &rule{
			ruleKey: ruleKey{table: t.Id, others: true}, name: t.Name, age: millis(ms), except: named,
			restored: t.Restored.GetAt(),
		})
	}
	return rules
}

func millis(ms uint64) time.Duration { return time.Duration(ms) * time.Millisecond }

// step does one transaction of the rule's pass.
func (w *work) step(ctx context.Context, r *rule) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	of := txn.Deletion{
		ScanSpec: txn.ScanSpec{From: r.from}, ID: mvcc.TableID(r.table), Except: r.except, Name: "expiry",
		Cutoff: func(start mvcc.Timestamp) mvcc.Timestamp {
			if r.began == 0 {
				r.began = start
			}
			return w.cutoff(start, r.age)
		},
	}
	if !r.others {
		of.Columns = []string{r.column}
	}
	d, err := w.cfg.Client.DeleteSome(ctx, of)
	if err != nil {
		if r.err == nil && ctx.Err() == nil && !errors.Is(err, txn.ErrNoTable) {
			w.cfg.Logger.Warn("expirer: deleting expired cells failed; trying again", "table", r.name, "error", err)
		}
		r.err, r.next = err, w.cfg.Now().Add(retry)
		return
	}
	r.err = nil
	w.cfg.Stats.Deleted.Add(uint64(d.Cells))
	if d.Oldest != 0 && (r.oldest == 0 || d.Oldest < r.oldest) {
		r.oldest = d.Oldest
	}
	if !d.Done {
		r.from = d.Next
		return
	}
	w.cfg.Stats.Passes.Add(1)
	// Whatever the pass has not seen was committed after the start timestamp of its first transaction.
	oldest := r.began
	if r.oldest != 0 {
		oldest = min(oldest, r.oldest)
	}
	now := w.cfg.Now()
	r.due = time.UnixMilli(oldest.Millis()).Add(r.age)
	r.next = r.due.Add(settled)
	if soonest := now.Add(r.interval()); r.next.Before(soonest) {
		r.next = soonest
	}
	r.from, r.began, r.oldest = "", 0, 0
}

// cutoff returns the lowest commit timestamp that has not expired for a transaction that starts at
// start. The oracle's time may be ahead of this node's clock, after a clock that was wrong led meta
// or when the leadership has moved: then the earlier time, the clock's, counts, so that nothing expires early.
func (w *work) cutoff(start mvcc.Timestamp, age time.Duration) mvcc.Timestamp {
	present := min(start.Millis(), w.cfg.Now().UnixMilli())
	return mvcc.TimestampAt(max(present-age.Milliseconds(), 1))
}

// show publishes the rules.
func (w *work) show() {
	shown := make([]shownRule, 0, len(w.rules))
	for _, r := range w.rules {
		s := shownRule{due: r.due, rule: &pb.ExpiryRule{
			Table: r.table, TableName: r.name, Column: []byte(r.column), Others: r.others,
			AfterMs: uint64(r.age.Milliseconds()), ToleratedMs: uint64(r.interval().Milliseconds()),
		}}
		if r.err != nil {
			s.rule.Error = r.err.Error()
		}
		shown = append(shown, s)
	}
	slices.SortFunc(shown, func(a, b shownRule) int { return compare(a.rule, b.rule) })
	w.status.set(shown)
}

// compare orders rules by table and column, the one of other columns last.
func compare(a, b *pb.ExpiryRule) int {
	if c := cmp.Or(cmp.Compare(a.TableName, b.TableName), cmp.Compare(a.Table, b.Table)); c != 0 {
		return c
	}
	if a.Others != b.Others {
		if a.Others {
			return 1
		}
		return -1
	}
	return bytes.Compare(a.Column, b.Column)
}
