package cli

import (
	"fmt"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// This file concludes from what the nodes tell of the row's runs: one that goes on for
// long, runs that come to nothing, and runs without end. It tells of remarkable rows
// only, so nothing follows from its silence.

// onNode is what the nodes tell of the row; nil: nothing.
func (f *facts) onNode() *pb.ObserverRow {
	for _, r := range f.stats.GetRows() {
		if string(r.Row) == f.row {
			return r
		}
	}
	return nil
}

// going is the verdict on runs that go on; its code is empty if there is nothing to say.
func (f *facts) going() verdict {
	r := f.onNode()
	ran := time.Duration(r.GetRunningMs()) * time.Millisecond
	switch {
	case r.GetOverdue():
		return verdict{whyRunning, fmt.Sprintf("It has been running for %s, since %s UTC, and does not return: it is past its deadline and ignores the end of its context.",
			span(ran), f.began(ran)), "mend the observer and restart its program: nothing else ends such a run"}
	case ran > 0:
		return verdict{whyRunning, fmt.Sprintf("It has been running for %s, since %s UTC.", span(ran), f.began(ran)),
			"wait for it: a run that does not return by its deadline is counted as failed"}
	case r.GetRetries() > 0:
		return verdict{whyContended, fmt.Sprintf("Its last %d runs came to nothing: other transactions were faster, or nodes did not answer.", r.Retries),
			"see that the observer does not change what it writes in a transaction of its own as well; if this goes on, it is counted as failed, and parked in the end"}
	case r.GetRuns() > 0:
		return verdict{whyRepeating, fmt.Sprintf("It runs for this row again and again: %d times within ten seconds.", r.Runs),
			"see whether it writes the column that it observes, or an observer that it triggers does: that never ends; `observer pause OBSERVER` stops it"}
	}
	return verdict{}
}

// began is when a run began that has gone on for so long.
func (f *facts) began(ran time.Duration) string {
	return clock(mvcc.TimestampAt(f.now.Millis() - ran.Milliseconds()))
}
