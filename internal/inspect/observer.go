package inspect

import (
	"fmt"
	"strings"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/pbjson"
)

// Observers and back-fills in JSON.

// States of an observer; the first that holds. Paused comes before unlinked: starting a
// program does not help while the observer is paused.
const (
	ObserverRetiring = "retiring" // the observer's notifications are being removed
	ObserverPaused   = "paused"
	ObserverUnlinked = "unlinked" // no process that the node knows has registered it
	ObserverWaiting  = "waiting"  // for an external service that has refused its runs
	ObserverRunning  = "running"
)

// Observer is an observer in JSON. The figures from Runs on are the sums over all nodes that run
// it.
type Observer struct {
	Name    string       `json:"name"`
	Table   string       `json:"table"`
	Column  pbjson.Bytes `json:"column"`
	Weak    bool         `json:"weak"`
	State   string       `json:"state"`
	Linked  bool         `json:"linked"`
	Paused  bool         `json:"paused"`
	Retired bool         `json:"retired,omitempty"`
	Waiting uint64       `json:"waiting"` // notifications that are not parked, intents among them
	Parked  uint64       `json:"parked"`
	// of the waiting ones; omitted if none
	OldestTS    uint64 `json:"oldest_ts,omitempty"`
	OldestAgeMS int64  `json:"oldest_age_ms,omitempty"` // by the oracle's time
	// most runs at once in a process: the limit in force if it is known, else the one set; 0 means
	// as registered
	Limit uint32 `json:"limit"`

	// runs started: each counts as one of the next three, as unavailable or as refused, or is
	// running
	Runs        uint64 `json:"runs"`
	Commits     uint64 `json:"commits"`
	Conflicts   uint64 `json:"conflicts"`   // run again, and not counted against the observer
	Failures    uint64 `json:"failures"`    // errors, panics and deadlines
	RunsParked  uint64 `json:"runs_parked"` // how often a run ended in parking
	Skipped     uint64 `json:"skipped"`     // found clean, not run
	Unavailable uint64 `json:"unavailable"` // given up for now, because a tablet did not answer
	Collapsed   uint64 `json:"collapsed"`   // changes that joined a queued or running run
	Running     uint32 `json:"running"`
	Queued      uint32 `json:"queued"`
	Backoff     uint32 `json:"backoff"` // cells that pause after a failure
	// functions that have not returned long after their deadline
	Stuck     uint32 `json:"stuck"`
	Contended uint32 `json:"contended"` // cells whose runs keep losing conflicts
	Unserved  uint32 `json:"unserved"`  // cells whose runs keep failing, mostly as unavailable

	Refused uint64   `json:"refused,omitempty"` // run again, because an external service refused them
	Outside *Outside `json:"outside,omitempty"` // the wait for that service; left out if there is none

	Nodes []uint64 `json:"nodes,omitempty"` // nodes that run the observer, included in the figures
	// Versions are those that these nodes have registered, lowest first.
	Versions []ObserverVersion `json:"versions,omitempty"`
	// live nodes without an answer, whose figures are missing
	Silent []uint64 `json:"silent_nodes,omitempty"`

	Rows []ObserverRow `json:"rows,omitempty"` // some dozens at most, which may need attention

	Backfill *Backfill `json:"backfill,omitempty"` // the last one
}

// ObserverVersion is a registered version of an observer, and the nodes that run it.
type ObserverVersion struct {
	Version uint32   `json:"version"`
	Nodes   []uint64 `json:"nodes"`
}

// ObserverRow is a row whose observer runs for long, or again and again.
type ObserverRow struct {
	Row       pbjson.Bytes `json:"row"`
	RunningMS uint64       `json:"running_ms,omitempty"` // how long the row's run has gone on
	Overdue   bool         `json:"overdue,omitempty"`    // past its deadline, and abandoned
	Retries   uint32       `json:"retries,omitempty"`    // consecutive unsuccessful runs; 0: few
	Runs      uint32       `json:"runs,omitempty"`       // runs within ten seconds; 0: few
	// Cycle names the observers by which the row sets itself off, PauseMS is the pause between its runs.
	Cycle   string `json:"cycle,omitempty"`
	PauseMS uint64 `json:"pause_ms,omitempty"`
}

// Outside is the wait of an observer for an external service that has refused its runs.
type Outside struct {
	SinceMS   int64  `json:"since_unix_ms"` // of the first refusal
	NextInMS  uint64 `json:"next_in_ms"`    // until the next attempt; 0: it is under way, or about to start
	Error     string `json:"error,omitempty"`
	forMillis uint64
}

// NewOutside converts the nodes' reports as of a time; nil if the observer does not wait.
func NewOutside(w *pb.OutsideWait, now mvcc.Timestamp) *Outside {
	if w == nil {
		return nil
	}
	return &Outside{now.Millis() - int64(w.WaitedMs), w.NextMs, w.Error, w.WaitedMs}
}

// String describes the wait: "waiting for an outside service since …, next attempt in …".
func (o *Outside) String() string {
	next := "next attempt in " + Span(time.Duration(o.NextInMS)*time.Millisecond)
	if o.NextInMS == 0 {
		next = "next attempt now"
	}
	return fmt.Sprintf("waiting for an outside service since %s UTC (%s), %s",
		time.UnixMilli(o.SinceMS).UTC().Format(time.DateTime),
		Span(time.Duration(o.forMillis)*time.Millisecond), next)
}

// NewObserver converts what meta and the nodes report of an observer.
func NewObserver(s *pb.ObserverState, now mvcc.Timestamp) *Observer {
	info, n := s.GetInfo(), s.GetStatus()
	o := &Observer{
		Name: info.GetName(), Table: info.GetTableName(), Column: pbjson.Bytes(info.GetColumn()),
		Weak:  info.GetWeak(),
		State: observerState(s), Linked: s.GetLinked(), Paused: info.GetPaused(),
		Retired: info.GetRetired(),
		Waiting: s.GetNotifications() + s.GetIntents(), Parked: s.GetParked(),
		OldestTS: s.GetOldestTs(), Limit: info.GetLimit(),
		Runs: n.GetRuns(), Commits: n.GetCommits(), Conflicts: n.GetConflicts(),
		Failures: n.GetFailures(), RunsParked: n.GetParked(),
		Skipped: n.GetSkipped(), Unavailable: n.GetUnavailable(), Collapsed: n.GetCollapsed(),
		Running: n.GetRunning(),
		Queued:  n.GetQueued(), Backoff: n.GetWaiting(), Stuck: n.GetStuck(),
		Contended: n.GetContended(), Unserved: n.GetUnserved(), Backfill: NewBackfill(s.GetBackfill()),
		Refused: n.GetRefused(), Outside: NewOutside(n.GetOutside(), now),
	}
	for _, r := range n.GetRows() {
		o.Rows = append(o.Rows, ObserverRow{
			pbjson.Bytes(r.Row), r.RunningMs, r.Overdue, r.Retries, r.Runs, r.Cycle, r.PauseMs,
		})
	}
	// Prefer the limit in force to the catalogue's, which may be older.
	o.Nodes, o.Silent = s.GetNodes(), s.GetSilent()
	for _, v := range s.GetVersions() {
		o.Versions = append(o.Versions, ObserverVersion{v.Version, v.Nodes})
	}
	if n.GetLimit() != 0 {
		o.Limit = n.GetLimit()
	}
	if o.OldestTS != 0 {
		o.OldestAgeMS = max(0, now.Millis()-mvcc.Timestamp(o.OldestTS).Millis())
	}
	return o
}

// observerState returns the first of the states that holds.
func observerState(s *pb.ObserverState) string {
	switch {
	case s.GetInfo().GetRetired():
		return ObserverRetiring
	case s.GetInfo().GetPaused():
		return ObserverPaused
	case !s.GetLinked():
		return ObserverUnlinked
	case s.GetStatus().GetOutside() != nil:
		return ObserverWaiting
	}
	return ObserverRunning
}

// VersionText lists the versions: the number if all nodes run the same one, otherwise with the
// number of nodes of each, "1 (2 nodes), 2 (1 node)"; empty if none runs it.
func (o *Observer) VersionText() string {
	if len(o.Versions) == 1 {
		return fmt.Sprint(o.Versions[0].Version)
	}
	texts := make([]string, len(o.Versions))
	for i, v := range o.Versions {
		unit := "nodes"
		if len(v.Nodes) == 1 {
			unit = "node"
		}
		texts[i] = fmt.Sprintf("%d (%d %s)", v.Version, len(v.Nodes), unit)
	}
	return strings.Join(texts, ", ")
}

// AtOnce returns the maximum number of concurrent runs on all nodes; 0 means unknown.
func (o *Observer) AtOnce() uint32 { return o.Limit * uint32(max(1, len(o.Nodes))) }

// States of a back-fill.
const (
	BackfillRunning   = "running"
	BackfillDone      = "done"
	BackfillCancelled = "cancelled"
	BackfillFailed    = "failed"
)

// Backfill is a back-fill in JSON.
type Backfill struct {
	Observer string       `json:"observer"`
	State    string       `json:"state"`
	TS       uint64       `json:"ts"`       // rows that exist at it are marked
	Rows     uint64       `json:"rows"`     // marked so far
	NextRow  pbjson.Bytes `json:"next_row"` // rows before it are done
	Error    string       `json:"error,omitempty"`
	// Only rows whose last run was of a version below BelowVersion are marked, and Examined is the
	// number of rows read so far, marked or not. If BelowVersion is 0, all rows are marked.
	BelowVersion uint32 `json:"below_version,omitempty"`
	Examined     uint64 `json:"examined,omitempty"`
}

// NewBackfill converts a back-fill; nil stays nil.
func NewBackfill(b *pb.Backfill) *Backfill {
	if b == nil {
		return nil
	}
	out := &Backfill{
		Observer: b.Name, State: BackfillRunning, TS: b.Ts, Rows: b.Rows,
		NextRow: pbjson.Bytes(b.NextRow), Error: b.Error, BelowVersion: b.BelowVersion, Examined: b.Examined,
	}
	switch {
	case b.Done:
		out.State = BackfillDone
	case b.Cancelled:
		out.State = BackfillCancelled
	case b.Error != "":
		out.State = BackfillFailed
	}
	return out
}
