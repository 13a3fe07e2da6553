package inspectcmd

import (
	"fmt"
	"strings"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// This file draws the conclusion from the facts that why.go has gathered. It makes no
// requests.

// verdict is the answer of why: a word for programs, a sentence for people, and what to
// do, if there is something.
type verdict struct {
	code     string // one of the verdicts below; programs may rely on it
	sentence string // times in it are by the oracle's clock
	// commands without the program's name, OBSERVER, TABLE and ROW for what was asked
	// about
	next string
}

// The verdicts.
const (
	whyUnknown      = "unknown_observer"    // never registered, or retired and gone
	whyOtherTable   = "other_table"         // it observes another table
	whyRetiring     = "retiring"            // on its way out of the catalogue
	whyNeverWritten = "never_written"       // the observed cell has no version, and no lock
	whyUncommitted  = "uncommitted"         // written, not committed yet
	whyRan          = "ran"                 // for the newest change
	whyBefore       = "before_registration" // written, but it never ran and nothing asks for it
	whyUnobserved   = "unobserved_change"   // written while the observer was not in the catalogue
	whyParked       = "parked"              // given up after too many failures
	whyPaused       = "paused"
	whyUnlinked     = "unlinked"       // no process that the node knows has registered it
	whyLocked       = "locked"         // by a transaction that is alive
	whyAbandoned    = "abandoned_lock" // by one that is decided, or whose time is over
	whyRunning      = "running"        // its run has gone on for long
	whyContended    = "contended"      // its runs come to nothing again and again
	whyRepeating    = "repeating"      // it runs again and again
	whyFailing      = "failing"        // runs have failed, and more are to come
	whyLimited      = "limited"        // as many as may run at once are running
	whyWaiting      = "waiting"        // nothing is in the way
	whyIntent       = "intent"         // weak: the notifying transaction is not settled here
	whyNothing      = "nothing_waits"  // weak: a run leaves no trace
)

// VerdictList names the verdicts of why, separated by commas.
func VerdictList() string {
	return strings.Join([]string{
		whyUnknown, whyOtherTable, whyRetiring, whyNeverWritten, whyUncommitted, whyRan, whyBefore,
		whyUnobserved, whyParked,
		whyPaused, whyUnlinked, whyLocked, whyAbandoned, whyRunning, whyContended,
		whyRepeating, whyFailing, whyLimited, whyWaiting, whyIntent, whyNothing,
	}, ", ")
}

// judge returns the verdict. What has to be mended first comes first: a parked
// notification stays parked when the observer is resumed, and a paused observer does not
// run when a lock goes.
func judge(f *facts) verdict {
	switch {
	case f.info == nil:
		return f.unknown()
	case f.info.TableName != f.table:
		return verdict{whyOtherTable, fmt.Sprintf("Observer %s observes table %s, not %s.",
			shell.Printable(f.observer), shell.Printable(f.info.TableName), shell.Printable(f.table)),
			"ask for a row of that table"}
	case f.info.Retired:
		return verdict{whyRetiring, "The observer is being retired: its notifications are " +
			"removed, and it does not run any more.",
			"a program that registers it brings it back when it starts"}
	case f.due() && (f.notify != nil || f.info.Weak): // a scanner will find the notification
		return f.held()
	case f.info.Weak:
		return f.weak()
	case f.due(): // but no notification says so
		return f.unnoticed()
	case f.change == nil && f.ack == nil:
		return f.unwritten()
	case f.onNode().GetRuns() > 0:
		return f.going()
	}
	return f.ran()
}

// unknown is the verdict if the catalogue does not have the observer; it may once have
// had it.
func (f *facts) unknown() verdict {
	v := verdict{whyUnknown, fmt.Sprintf(
		"No observer is called %s: none was ever registered under this name, or it was retired, "+
			"or its table was dropped.", shell.Printable(f.observer)),
		"`observer ls` lists the observers"}
	if f.ack != nil {
		v.sentence = fmt.Sprintf("No observer is called %s any more; it ran for this row at %s "+
			"and was retired since, or its table was dropped.", shell.Printable(f.observer),
			f.when(f.acknowledged()))
	}
	return v
}

// held is the verdict if there is a notification: it says what keeps the observer from
// running.
func (f *facts) held() verdict {
	n, o := f.notify, f.state
	switch lock := f.inTheWay(); {
	case n.GetParkedTs() != 0:
		return verdict{whyParked, fmt.Sprintf(
			"It was given up at %s after %d failed runs; the last error was: %s",
			f.when(mvcc.Timestamp(n.GetParkedTs())), n.GetAttempts(), firstLine(n.GetError())),
			"mend the cause, then `notify replay OBSERVER ROW`; a newer change of the cell runs " +
				"it too"}
	case o.Paused:
		return verdict{
			whyPaused, "The change waits because the observer is paused.",
			"`observer resume OBSERVER`",
		}
	case !o.Linked:
		return verdict{whyUnlinked, "The change waits because no program that registers the " +
			"observer is running.",
			"start the program that has the observer in its main"}
	case lock != nil && lock.fate == fateAlive:
		return verdict{whyLocked, fmt.Sprintf(
			"The change waits for transaction %d, which is alive and holds a lock on %s.",
			lock.lock.Lock.StartTS, lock.where()), "wait for it; `lock ls` shows who it is"}
	case lock != nil:
		return verdict{whyAbandoned, fmt.Sprintf(
			"A lock of transaction %d is left on %s (%s); the observer's run settles it when it "+
				"meets it.",
			lock.lock.Lock.StartTS, lock.where(), fateText(lock, f)),
			"`lock resolve TABLE ROW` settles it now"}
	case f.going().code != "":
		return f.going()
	case n.GetAttempts() > 0:
		return verdict{whyFailing, fmt.Sprintf(
			"It has failed %d times and is tried again after a pause; the last error was: %s",
			n.GetAttempts(), firstLine(n.GetError())),
			"mend the cause; after too many failures it is parked"}
	case o.Stuck > 0 && o.Stuck == o.Running && o.Queued > 0:
		return verdict{whyLimited, fmt.Sprintf(
			"The change waits behind %d runs that are past their deadline and do not return: "+
				"the observer ignores the end of its context.",
			o.Stuck), "mend the observer and restart its program: nothing else ends such a run"}
	case o.Limit > 0 && o.Running >= o.atOnce():
		return verdict{whyLimited, fmt.Sprintf(
			"The change waits in line: %d of at most %d runs are under way on all nodes, %d "+
				"changes are queued there.",
			o.Running, o.atOnce(), o.Queued),
			"wait, or allow more with `observer limit OBSERVER N`"}
	}
	return f.waiting()
}

// waiting is the verdict if nothing is in the way.
func (f *facts) waiting() verdict {
	n := f.notify
	what := "The change"
	if n.GetReplay() {
		what = "A replay"
	}
	sentence := fmt.Sprintf("%s of %s waits for its run; nothing is in its way.", what,
		f.when(mvcc.Timestamp(n.GetTs())))
	if f.state.Running+f.state.Queued > 0 {
		sentence = fmt.Sprintf("%s of %s waits for its run, or is running: %d runs are under "+
			"way on all nodes, %d changes are queued there.",
			what, f.when(mvcc.Timestamp(n.GetTs())), f.state.Running, f.state.Queued)
	}
	return verdict{whyWaiting, sentence, "ask again in a moment; scanners find it within seconds"}
}

// inTheWay returns the lock that a run would have to wait for or settle, preferably a live
// one; nil if there is none. The run's own lock on its acknowledgment counts too: while it is
// there the run is not through.
func (f *facts) inTheWay() *obstacle {
	var found *obstacle
	for i := range f.blocks {
		if found == nil || f.blocks[i].fate == fateAlive {
			found = &f.blocks[i]
		}
	}
	return found
}

// weak is the verdict on a weak observer without a notification; an intent may be about
// to become one.
func (f *facts) weak() verdict {
	for i := range f.intents {
		o := &f.intents[i]
		if o.fate == fateAlive {
			return verdict{whyIntent, fmt.Sprintf(
				"A transaction has made a notification and not committed yet (%d, alive): it "+
					"takes effect when that commits.",
				o.lock.Lock.StartTS), "wait for it; `lock ls` shows who it is"}
		}
	}
	for i := range f.intents {
		o := &f.intents[i]
		if o.fate == fateCommitted {
			return verdict{whyIntent, fmt.Sprintf(
				"Transaction %d made a notification and committed at %s, but its intent has not "+
					"been turned into one yet.",
				o.lock.Lock.StartTS, f.when(o.commitTS)),
				"`lock resolve TABLE ROW` does it now; scanners do it within seconds"}
		}
	}
	if len(f.intents) > 0 {
		o := &f.intents[0]
		return verdict{whyIntent, fmt.Sprintf(
			"Transaction %d made a notification but never committed (%s): it does not take effect.",
			o.lock.Lock.StartTS, fateText(o, f)), "`lock resolve TABLE ROW` removes it"}
	}
	return verdict{whyNothing, "Nothing waits: either it has run for the last notification (a " +
		"weak observer's run leaves no trace), or the row was never notified.",
		"`notify replay OBSERVER ROW` runs it once more"}
}

// unnoticed is the verdict if the cell has changed since the last run but left no
// notification.
func (f *facts) unnoticed() verdict {
	// A run commits its acknowledgment with its writes. A lock of that commit explains
	// why the change looks forgotten.
	if lock := f.inTheWay(); lock != nil && lock.onAck {
		return verdict{whyLocked, fmt.Sprintf(
			"Its run is committing, or was left half done (transaction %d, %s).",
			lock.lock.Lock.StartTS, fateText(lock, f)),
			"ask again in a moment; `lock resolve TABLE ROW` settles what was left"}
	}
	// A new observer sees changes from its registration on (design section 7): earlier
	// ones have left no notification.
	if f.ack == nil {
		return verdict{whyBefore, fmt.Sprintf(
			"The cell was last written at %s, before the observer was registered: an observer "+
				"sees changes from its registration on.",
			f.when(f.changedAt())), "`notify replay OBSERVER ROW` runs it for this row, " +
			"`observer replay OBSERVER` for all"}
	}
	return verdict{whyUnobserved, fmt.Sprintf(
		"The cell was written at %s while the observer was not registered: it last ran at %s, "+
			"and was retired in between.",
		f.when(f.changedAt()), f.when(f.acknowledged())),
		"`notify replay OBSERVER ROW` runs it for this row, `observer replay OBSERVER` for all"}
}

// unwritten is the verdict if the history that is kept has no committed change.
func (f *facts) unwritten() verdict {
	if o := f.inTheWay(); o != nil {
		next := "wait for it; `lock ls` shows who it is"
		if o.fate != fateAlive {
			next = "`lock resolve TABLE ROW` settles it now"
		}
		return verdict{whyUncommitted, fmt.Sprintf(
			"The cell is being written for the first time by transaction %d (%s): the observer "+
				"runs once that has committed and is rolled forward.",
			o.lock.Lock.StartTS, fateText(o, f)), next}
	}
	if f.rows == 0 {
		return verdict{whyNeverWritten, "The row was never written, or was deleted so long ago " +
			"that its history is gone.",
			"is the row spelled as it is stored? " + rowsThatExist}
	}
	return verdict{whyNeverWritten, fmt.Sprintf(
		"The row is there, but its column %s, which the observer observes, was never written.",
		shell.Printable(string(f.info.Column))),
		"`history TABLE ROW` shows what the row holds"}
}

// ran is the verdict if the acknowledgment is not older than the newest change.
func (f *facts) ran() verdict {
	v := verdict{code: whyRan}
	ran := fmt.Sprintf("It ran at %s and committed at %d", f.when(f.acknowledged()),
		f.ack.GetCommitTs())
	switch {
	case f.change == nil:
		v.sentence = ran + "; the cell has no version any more."
	case f.change.GetKind() == pb.Kind_KIND_DELETE:
		v.sentence = ran + fmt.Sprintf(", after the newest change, a deletion committed at %s.",
			f.when(f.changedAt()))
	default:
		v.sentence = ran + fmt.Sprintf(", after the newest change, committed at %s.",
			f.when(f.changedAt()))
	}
	for i := range f.blocks {
		if o := &f.blocks[i]; !o.onAck {
			v.sentence += fmt.Sprintf(" A newer change is under way: transaction %d, %s.",
				o.lock.Lock.StartTS, fateText(o, f))
			break
		}
	}
	return v
}

// where says which cell the lock is on.
func (o *obstacle) where() string {
	if o.onAck {
		return "the acknowledgment column, as a run that is committing does"
	}
	return "the observed cell"
}

// fateText describes the fate of an obstacle's transaction.
func fateText(o *obstacle, f *facts) string {
	switch o.fate {
	case fateCommitted:
		return fmt.Sprintf("committed at %d, to be rolled forward", o.commitTS)
	case fateRolledBack:
		return "rolled back, to be cleared away"
	case fateExpired:
		return fmt.Sprintf("abandoned: its time was over %s ago", shell.Ago(o.until, f.now))
	}
	return fmt.Sprintf("alive for at least %s more", shell.Ago(f.now, o.until))
}

// onNode returns what the nodes report of the row's runs, or nil. They report only rows
// with trouble, so nothing follows from nil.
func (f *facts) onNode() *pb.ObserverRow {
	for _, r := range f.stats.GetRows() {
		if string(r.Row) == f.row {
			return r
		}
	}
	return nil
}

// going is the verdict on a run under way or retried; its code is empty if no node
// reports one.
func (f *facts) going() verdict {
	r := f.onNode()
	ran := time.Duration(r.GetRunningMs()) * time.Millisecond
	switch {
	case r.GetOverdue():
		return verdict{whyRunning, fmt.Sprintf(
			"It has been running for %s, since %s UTC, and does not return: it is past its "+
				"deadline and ignores the end of its context.",
			shell.Span(ran), f.began(ran)), "mend the observer and restart its program: nothing else " +
			"ends such a run"}
	case ran > 0:
		return verdict{whyRunning, fmt.Sprintf("It has been running for %s, since %s UTC.",
			shell.Span(ran), f.began(ran)),
			"wait for it: a run that does not return by its deadline is counted as failed"}
	case 2*r.GetUnserved() > r.GetRetries():
		return verdict{whyContended, fmt.Sprintf(
			"Its last %d runs came to nothing: the function says that something is unavailable, or "+
				"nodes did not answer.", r.Retries),
			"see that what the function needs answers; if this goes on, it is counted as failed, and " +
				"parked in the end with the error"}
	case r.GetRetries() > 0:
		return verdict{whyContended, fmt.Sprintf(
			"Its last %d runs came to nothing: mostly because other transactions were "+
				"faster.", r.Retries),
			"see that the observer does not change what it writes in a transaction of its own " +
				"as well; if this goes on, it is counted as failed, and parked in the end"}
	case r.GetRuns() > 0:
		return verdict{whyRepeating, fmt.Sprintf(
			"It runs for this row again and again: %d times within ten seconds.", r.Runs),
			"see whether it writes the column that it observes, or an observer that it triggers " +
				"does: that never ends; `observer pause OBSERVER` stops it"}
	}
	return verdict{}
}

// began returns the start of a run that has taken ran so far.
func (f *facts) began(ran time.Duration) string {
	return shell.Clock(mvcc.TimestampAt(f.now.Millis() - ran.Milliseconds()))
}
