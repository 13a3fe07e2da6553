package simtest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Kind is a kind of fault, or of administrative work that clients must not notice.
type Kind string

// Kinds of events.
const (
	Crash Kind = "crash" // a node dies and restarts
	// the leader of a tablet dies and restarts: tablet 0 is meta, with the oracle
	CrashLead Kind = "crash lead"
	CrashAll  Kind = "crash all"
	Restart   Kind = "restart" // an orderly stop and start
	Isolate   Kind = "isolate" // a node is partitioned from all other nodes, not from clients
	// the leader of a tablet is partitioned from all other nodes, not from clients
	Depose Kind = "depose"
	// the leader of a tablet neither receives nor sends Raft messages, and its Raft clock stops,
	// so that it still considers itself the leader, and can get timestamps
	Freeze   Kind = "freeze"
	Halves   Kind = "halves"    // the nodes with indices below A are partitioned from the others
	OneWay   Kind = "one way"   // messages from one node to another are lost
	Deaf     Kind = "deaf"      // the leader of a tablet sends but receives nothing
	Storm    Kind = "storm"     // loss, duplication, delay and reordering everywhere
	Stall    Kind = "stall"     // a node is paused
	Rumour   Kind = "rumour"    // a live node is reported dead
	Lead     Kind = "lead"      // a tablet's leadership is moved
	Split    Kind = "split"     // a tablet is split
	Merge    Kind = "merge"     // a tablet is merged into the preceding one
	Move     Kind = "move"      // a tablet's replica is moved
	Add      Kind = "add"       // a node joins
	Drain    Kind = "drain"     // a node is drained, and the drain is cancelled later
	KillUser Kind = "kill user" // a client dies during commits
	// half of the commits of two-phase transactions that hold all their locks are delayed, by up to
	// 3 s
	Hesitate Kind = "hesitate"
	// Swing: the leader of a tablet is falsely reported dead for a moment, then its successor, so
	// that leaders lose a tablet and soon lead it again; meanwhile messages other than Raft's reach
	// the first of them late
	Swing Kind = "swing"
	// March: a replica of a tablet moves to a node without one, which then becomes the leader, again
	// and again: every leader began with a snapshot
	March Kind = "march"
)

// Event is an event that begins at a time after the start of the load and ends after For. The meaning
// of A and B depends on the kind; they choose among the nodes or tablets that exist then.
type Event struct {
	At, For time.Duration
	Kind    Kind
	A, B    int
	Weather weather
	Unplug  bool // the crash is a power loss, which loses unsynced data
}

// String returns a line of a schedule.
func (e Event) String() string {
	text := fmt.Sprintf("%9v for %7v  %-10s %d %d", e.At, e.For, e.Kind, e.A, e.B)
	if e.Kind == Storm {
		text += "  " + e.Weather.String()
	}
	if e.Unplug {
		text += "  power loss"
	}
	return text
}

// Schedule is a list of events, ordered by start time.
type Schedule []Event

// String returns a line for each event.
func (s Schedule) String() string {
	var b strings.Builder
	for _, e := range s {
		fmt.Fprintf(&b, "  %v\n", e)
	}
	return b.String()
}

// everything contains the relative frequency of each kind.
var everything = map[Kind]int{
	Crash: 4, CrashLead: 6, CrashAll: 1, Restart: 2, Isolate: 3, Depose: 3, Freeze: 5, Halves: 3,
	OneWay: 3, Deaf: 3, Storm: 4, Stall: 4,
	Rumour: 2, Lead: 4, Split: 5, Merge: 5, Move: 2, Add: 1, Drain: 1, KillUser: 2, Hesitate: 2, Swing: 2,
	March: 1,
}

// kinds lists all kinds in a fixed order, so that a seed determines the schedule.
var kinds = []Kind{
	Crash, CrashLead, CrashAll, Restart, Isolate, Depose, Freeze, Halves, OneWay, Deaf, Storm,
	Stall, Rumour, Lead, Split, Move, Add, Drain, KillUser,
	Hesitate, Swing, March, Merge,
}

// plan returns the schedule of a seed: events, some overlapping, that begin within the time. gap is
// the maximum time between the beginnings of two successive ones.
func plan(seed uint64, nodes int, within, gap time.Duration, shares map[Kind]int) (out Schedule) {
	rng, power := rand.New(rand.NewPCG(seed, 2)), rand.New(rand.NewPCG(seed, 5))
	total := 0
	for _, k := range kinds {
		total += shares[k]
	}
	if total == 0 {
		return nil
	}
	at := between(rng, 500*time.Millisecond, 2*time.Second)
	for ; at < within; at += between(rng, gap/16, gap) {
		e := Event{
			At: at.Round(time.Millisecond), Kind: choose(rng, shares, total), A: rng.IntN(nodes),
			B: rng.IntN(nodes - 1),
		}
		if e.B >= e.A {
			e.B++
		}
		e.For = between(rng, 200*time.Millisecond, 5*time.Second).Round(time.Millisecond)
		e.Unplug = power.IntN(2) == 0 &&
			(e.Kind == Crash || e.Kind == CrashLead || e.Kind == CrashAll)
		switch e.Kind {
		case CrashLead, Depose, Freeze, Deaf, Lead, Split, Move:
			// a tablet; half of the time meta, if the kind allows it
			e.A = rng.IntN(2) * rng.IntN(manyTablets)
		case Swing, March, Merge:
			e.A = rng.IntN(manyTablets)
		case Halves:
			e.A = 1 + rng.IntN(nodes-1)
		case Storm:
			e.Weather = weather{
				Drop: rng.Float64() * 0.2, Double: rng.Float64() * 0.3,
				Delay: between(rng, 5*time.Millisecond,
					300*time.Millisecond).Round(time.Millisecond),
			}
		}
		out = append(out, e)
	}
	return out
}

// manyTablets exceeds the number of tablets: an event's tablet is taken modulo their number.
const manyTablets = 120

func between(rng *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(rng.Int64N(int64(high-low)))
}

func choose(rng *rand.Rand, shares map[Kind]int, total int) Kind {
	n := rng.IntN(total)
	for _, k := range kinds {
		if n -= shares[k]; n < 0 {
			return k
		}
	}
	return kinds[0]
}
