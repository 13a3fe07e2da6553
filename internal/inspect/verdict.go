package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// This file judges the evidence that why.go has gathered. It makes no requests.

// The verdicts.
const (
	whyUnknown      = "unknown_observer"    // never registered, or retired and gone
	whyOtherTable   = "other_table"         // the observer observes another table
	whyRetiring     = "retiring"            // on its way out of the catalogue
	whyNeverWritten = "never_written"       // the observed cell has no version, and no lock
	whyUncommitted  = "uncommitted"         // written, not committed yet
	whyRan          = "ran"                 // for the newest change
	whyBefore       = "before_registration" // written, but not acknowledged and not notified
	whyUnobserved   = "unobserved_change"   // written while the observer was not in the catalogue
	whyParked       = "parked"              // given up after too many failures
	whyPaused       = "paused"
	whyUnlinked     = "unlinked"       // no process that the node knows has registered it
	whyLocked       = "locked"         // by a live transaction, or by the commit of the row's run
	whyAbandoned    = "abandoned_lock" // by a transaction that is decided or expired
	whyRunning      = "running"        // the row's run has gone on for long
	whyContended    = "contended"      // the row's runs keep losing conflicts or being unavailable
	whyOutside      = "outside"        // an external service has refused the observer's runs
	whyRepeating    = "repeating"      // the row sets itself off, or runs very often
	whyFailing      = "failing"        // runs have failed, and more are to come
	whyLimited      = "limited"        // the maximum number of runs are running
	whyWaiting      = "waiting"        // nothing is in the way
	whyIntent       = "intent"         // weak: the notifying transaction is unresolved here
	whyNothing      = "nothing_waits"  // weak: a run leaves no trace
)

// Verdicts returns the verdicts of why, separated by commas.
func Verdicts() string {
	return strings.Join([]string{
		whyUnknown, whyOtherTable, whyRetiring, whyNeverWritten, whyUncommitted, whyRan, whyBefore, whyUnobserved,
		whyParked, whyPaused, whyUnlinked, whyLocked, whyAbandoned, whyRunning, whyOutside, whyContended, whyRepeating,
		whyFailing, whyLimited, whyWaiting, whyIntent, whyNothing,
	}, ", ")
}

// Advice on an observer's troubles, for why and for findings of package health.
const (
	AdviceResume = "once the reason for the pause is gone: `observer resume OBSERVER`"
	AdviceStuck  = "the function ignores the end of its context: fix it and restart its program, which alone " +
		"ends such a run; `observer ls -o json` lists the rows"
	AdviceContended = "limit its concurrent runs, `observer limit OBSERVER 1`, or spread the cells that they all " +
		"write over more rows"
	AdviceLoop = "have it write the observed column only if the value changes; `trace TABLE ROW` shows the cycle, " +
		"`observer pause OBSERVER` stops it"
	AdviceRepeating = "check whether it, or an observer that it triggers, writes the column that it observes: such a " +
		"loop never ends; `observer ls -o json` lists the rows, `observer pause OBSERVER` stops it"
	AdviceOutside = "restore the service that its function calls, or raise the rate that it admits; nothing is " +
		"parked meanwhile, and `observer pause OBSERVER` and `observer resume OBSERVER` try at once"
	// AdviceRows is the remedy for a missing row of TABLE.
	AdviceRows = "`scan TABLE --limit 10` shows rows that exist; --escape go or --hex writes any bytes"

	adviceOwner   = "wait for it; `lock ls` shows who it is"
	adviceResolve = "`lock resolve TABLE ROW` settles it now"
	adviceReplay  = "`notify replay OBSERVER ROW` runs it for this row, `observer replay OBSERVER` for all"
)

// judge sets the verdict. The problem to fix first has priority: a parked notification stays parked
// when the observer is resumed, and a paused observer does not run when a lock is released.
func (w *Why) judge() {
	switch o := w.Observer; {
	case o == nil && w.Run != nil:
		w.say(whyUnknown, "`observer ls` lists the observers", "No observer is called %s any more; it ran for this "+
			"row at %s and was retired since, or its table was dropped.", Printable(w.name), w.when(w.acknowledged()))
	case o == nil:
		w.say(whyUnknown, "`observer ls` lists the observers", "No observer is called %s: none was ever registered "+
			"under this name, or it was retired, or its table was dropped.", Printable(w.name))
	case o.Table != w.Table:
		w.say(whyOtherTable, "ask for a row of that table", "Observer %s observes table %s, not %s.",
			Printable(w.name), Printable(o.Table), Printable(w.Table))
	case o.Retired:
		w.say(whyRetiring, "a program that registers it brings it back when it starts",
			"The observer is being retired: its notifications are removed, and it does not run any more.")
	case w.due() && w.Notification != nil: // a scanner will find the notification
		w.held()
	case o.Weak:
		w.weak()
	case w.due(): // but no notification says so
		w.unnoticed()
	case w.Change == nil && w.Run == nil:
		w.unwritten()
	case w.going.GetRuns() > 0, w.going.GetCycle() != "":
		w.underway()
	default:
		w.ran()
	}
}

// say sets the verdict, the advice and the sentence.
func (w *Why) say(verdict, next, format string, args ...any) {
	w.Verdict, w.Next, w.Sentence = verdict, next, fmt.Sprintf(format, args...)
}

// held judges a notification: it states what prevents the observer from running.
func (w *Why) held() {
	n, o := w.Notification, w.Observer
	switch lock := w.inTheWay(); {
	case n.ParkedTS != 0:
		w.say(whyParked, "fix the cause, then `notify replay OBSERVER ROW`; a newer change of the cell runs it too",
			"It was given up at %s after %d failed runs; the last error was: %s",
			w.when(n.ParkedTS), n.Attempts, FirstLine(n.Error))
	case o.Paused:
		w.say(whyPaused, AdviceResume, "The change waits because the observer is paused.")
	case !o.Linked:
		w.say(whyUnlinked, "start the program that registers the observer",
			"The change waits because no program that registers the observer is running.")
	case lock != nil && lock.State == FateAlive:
		w.say(whyLocked, adviceOwner, "The change waits for transaction %d, which is alive and holds a lock on %s.",
			lock.StartTS, lock.where())
	case lock != nil:
		w.say(whyAbandoned, adviceResolve, "A lock of transaction %d is left on %s (%s); the observer's run settles "+
			"it when it meets it.", lock.StartTS, lock.where(), w.fateText(lock))
	case o.Outside != nil && w.going.GetRunningMs() == 0:
		w.say(whyOutside, AdviceOutside, "The change waits because the observer is %s; the refusal was: %s",
			o.Outside, FirstLine(o.Outside.Error))
	case w.underway():
	case n.Attempts > 0:
		w.say(whyFailing, "fix the cause; after too many failures it is parked",
			"It has failed %d times and is tried again after a pause; the last error was: %s",
			n.Attempts, FirstLine(n.Error))
	case o.Stuck > 0 && o.Stuck == o.Running && o.Queued > 0:
		w.say(whyLimited, AdviceStuck, "The change waits behind %d runs that are past their deadline and do not "+
			"return: the observer ignores the end of its context.", o.Stuck)
	case o.Limit > 0 && o.Running >= o.AtOnce():
		w.say(whyLimited, "wait, or allow more with `observer limit OBSERVER N`",
			"The change waits in line: %d of at most %d runs are under way on all nodes, %d changes are queued there.",
			o.Running, o.AtOnce(), o.Queued)
	default:
		w.waiting()
	}
}

// waiting judges a notification if nothing is in the way.
func (w *Why) waiting() {
	what, state := "The change", "waits for its run; nothing is in its way."
	if w.Notification.Replay {
		what = "A replay"
	}
	if o := w.Observer; o.Running+o.Queued > 0 {
		state = fmt.Sprintf("waits for its run, or is running: %d runs are under way on all nodes, %d changes are "+
			"queued there.", o.Running, o.Queued)
	}
	w.say(whyWaiting, "ask again in a moment; scanners find it within seconds", "%s of %s %s", what,
		w.when(w.Notification.TS), state)
}

// inTheWay returns the lock that a run would have to wait for or resolve, preferably a live one, or
// nil. The run's own lock on its acknowledgment counts too: while it exists the run has not ended.
func (w *Why) inTheWay() *Obstacle {
	blocks := func(o *Obstacle) bool { return o.On != OnIntent }
	return cmp.Or(w.lock(func(o *Obstacle) bool { return blocks(o) && o.State == FateAlive }), w.lock(blocks))
}

// lock returns the first lock or intent that matches; nil if there is none.
func (w *Why) lock(matches func(*Obstacle) bool) *Obstacle {
	for i := range w.Locks {
		if matches(&w.Locks[i]) {
			return &w.Locks[i]
		}
	}
	return nil
}

// weak judges a weak observer without a notification; an intent may be about to become one.
func (w *Why) weak() {
	intent := func(states ...string) *Obstacle {
		return w.lock(func(o *Obstacle) bool { return o.On == OnIntent && slices.Contains(states, o.State) })
	}
	if o := intent(FateAlive); o != nil {
		w.say(whyIntent, adviceOwner, "A transaction has made a notification and not committed yet (%d, alive): it "+
			"takes effect when that commits.", o.StartTS)
	} else if o = intent(FateCommitted); o != nil {
		w.say(whyIntent, "`lock resolve TABLE ROW` does it now; scanners do it within seconds",
			"Transaction %d made a notification and committed at %s, but its intent has not been turned into one yet.",
			o.StartTS, w.when(o.CommitTS))
	} else if o = intent(FateExpired, FateRolledBack); o != nil {
		w.say(whyIntent, "`lock resolve TABLE ROW` removes it",
			"Transaction %d made a notification but never committed (%s): it does not take effect.",
			o.StartTS, w.fateText(o))
	} else {
		w.say(whyNothing, "`notify replay OBSERVER ROW` runs it once more", "Nothing waits: either it has run for the "+
			"last notification (a weak observer's run leaves no trace), or the row was never notified.")
	}
}

// unnoticed judges a cell that has changed since the last run but left no notification.
func (w *Why) unnoticed() {
	// A run commits its acknowledgment with its writes. A lock of that commit explains
	// why the change looks forgotten.
	if lock := w.inTheWay(); lock != nil && lock.On == OnAck {
		w.say(whyLocked, "ask again in a moment; `lock resolve TABLE ROW` settles what was left",
			"Its run is committing, or was left half done (transaction %d, %s).", lock.StartTS, w.fateText(lock))
		return
	}
	// A new observer sees changes from its registration on (design section 7): earlier
	// ones have left no notification.
	if w.Run == nil {
		w.say(whyBefore, adviceReplay, "The cell was last written at %s, before the observer was registered: an "+
			"observer sees changes from its registration on.", w.when(w.changedAt()))
		return
	}
	w.say(whyUnobserved, adviceReplay, "The cell was written at %s while the observer was not registered: it last "+
		"ran at %s, and was retired in between.", w.when(w.changedAt()), w.when(w.acknowledged()))
}

// unwritten judges a cell without a committed change in the kept history.
func (w *Why) unwritten() {
	switch o := w.inTheWay(); {
	case o != nil:
		next := adviceOwner
		if o.State != FateAlive {
			next = adviceResolve
		}
		w.say(whyUncommitted, next, "The cell is being written for the first time by transaction %d (%s): the "+
			"observer runs once that has committed and is rolled forward.", o.StartTS, w.fateText(o))
	case w.rows == 0:
		w.say(whyNeverWritten, "is the row spelled as it is stored? "+AdviceRows,
			"The row was never written, or was deleted so long ago that its history is gone.")
	default:
		w.say(whyNeverWritten, "`history TABLE ROW` shows what the row holds", "The row is there, but its column %s, "+
			"which the observer observes, was never written.", Printable(string(w.Observer.Column)))
	}
}

// ran judges an acknowledgment that is not older than the newest change.
func (w *Why) ran() {
	after := "; the cell has no version any more."
	if c := w.Change; c != nil {
		after = ", after the newest change, committed at " + w.when(c.CommitTS) + "."
		if c.Kind == "delete" {
			after = ", after the newest change, a deletion committed at " + w.when(c.CommitTS) + "."
		}
	}
	if o := w.lock(func(o *Obstacle) bool { return o.On == OnChange }); o != nil {
		after += fmt.Sprintf(" A newer change is under way: transaction %d, %s.", o.StartTS, w.fateText(o))
	}
	w.say(whyRan, "", "It ran at %s and committed at %d%s", w.when(w.acknowledged()), w.Run.CommitTS, after)
}

// where names the cell of the lock.
func (o *Obstacle) where() string {
	if o.On == OnAck {
		return "the acknowledgment column, as a run that is committing does"
	}
	return "the observed cell"
}

// fateText describes the fate of an obstacle's transaction.
func (w *Why) fateText(o *Obstacle) string {
	switch o.State {
	case FateCommitted:
		return fmt.Sprintf("committed at %d, to be rolled forward", o.CommitTS)
	case FateRolledBack:
		return "rolled back, to be cleared away"
	case FateExpired:
		return fmt.Sprintf("abandoned: its time was over %s ago", w.ago(o.Until))
	}
	return fmt.Sprintf("alive for at least %s more", Ago(mvcc.Timestamp(w.Now), mvcc.Timestamp(o.Until)))
}

// underway judges a run under way or retried; false: no node reports one.
func (w *Why) underway() bool {
	r := w.going
	ran := time.Duration(r.GetRunningMs()) * time.Millisecond
	began := Clock(mvcc.TimestampAt(mvcc.Timestamp(w.Now).Millis() - ran.Milliseconds()))
	switch {
	case r.GetCycle() != "":
		w.say(whyRepeating, AdviceLoop, "It sets itself off (%s), so that its runs for this row now wait %s each time.",
			r.Cycle, Span(time.Duration(r.PauseMs)*time.Millisecond))
	case r.GetOverdue():
		w.say(whyRunning, AdviceStuck, "It has been running for %s, since %s UTC, and does not return: it is past its "+
			"deadline and ignores the end of its context.", Span(ran), began)
	case ran > 0:
		w.say(whyRunning, "wait for it: a run that does not return by its deadline is counted as failed",
			"It has been running for %s, since %s UTC.", Span(ran), began)
	case 2*r.GetUnserved() > r.GetRetries():
		w.say(whyContended, "see that what the function needs answers; if this goes on, it is counted as failed, and "+
			"parked in the end with the error", "Its last %d runs failed: the function says that something is "+
			"unavailable, or nodes did not answer.", r.Retries)
	case r.GetRetries() > 0:
		w.say(whyContended, AdviceContended, "Its last %d runs failed, mostly by conflicts with other transactions.",
			r.Retries)
	case r.GetRuns() > 0:
		w.say(whyRepeating, AdviceRepeating, "It runs for this row again and again: %d times within ten seconds.", r.Runs)
	}
	return w.Verdict != ""
}
