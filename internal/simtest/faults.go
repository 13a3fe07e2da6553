package simtest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Kind is a kind of fault, or of work that must not be noticed.
type Kind string

// Kinds of events.
const (
	Crash Kind = "crash" // a node dies and comes back
	// likewise the one that leads a tablet: 0 is meta, with the oracle
	CrashLead Kind = "crash lead"
	CrashAll  Kind = "crash all"
	Restart   Kind = "restart" // in good order
	Isolate   Kind = "isolate" // a node is cut off
	// the node that leads a tablet is cut off from the other nodes, but not from its
	// clients
	Depose Kind = "depose"
	// the node that leads a tablet neither hears nor sends of Raft, and Raft's clock
	// stands still there:
	Freeze Kind = "freeze"
	// it goes on believing that it leads, and can ask for timestamps
	Halves   Kind = "halves"    // the nodes up to a number are cut off from the others
	OneWay   Kind = "one way"   // what one node sends to another is lost
	Deaf     Kind = "deaf"      // the leader of a tablet sends, and hears nothing
	Storm    Kind = "storm"     // loss, doubles, delays, reordering everywhere
	Stall    Kind = "stall"     // a node is paused
	Rumour   Kind = "rumour"    // a node is taken for dead while it lives
	Lead     Kind = "lead"      // a tablet's leadership is moved
	Split    Kind = "split"     // a tablet is split
	Merge    Kind = "merge"     // a tablet is merged with the one before it
	Move     Kind = "move"      // a tablet's replica is moved
	Add      Kind = "add"       // a node joins
	Drain    Kind = "drain"     // a node is drained; it is taken back later
	KillUser Kind = "kill user" // a client dies in the middle of commits
	// what clients send to commit two-phase transactions that hold all their locks comes
	// late, by seconds at times
	Hesitate Kind = "hesitate"
	// Swing: whoever leads a tablet is falsely believed dead for a moment, and then its
	// successor, so that leaders lose a tablet and lead it again soon; meanwhile what is
	// no Raft message reaches the first of them late
	Swing Kind = "swing"
	// March: a replica of a tablet moves to a node that has none, which is then to lead,
	// and so on: every leader has begun with a snapshot
	March Kind = "march"
)

// Event is something that happens at a time after the load has begun, and ends after For.
// What A and B mean depends on the kind; they choose among what there is then.
type Event struct {
	At, For time.Duration
	Kind    Kind
	A, B    int
	Weather weather
	Unplug  bool // of crashes: of a power loss, which takes from the store what was not synced
}

// String is a line of a schedule.
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

// Schedule is what happens, in the order of its beginnings.
type Schedule []Event

// String has a line for each event.
func (s Schedule) String() string {
	var b strings.Builder
	for _, e := range s {
		fmt.Fprintf(&b, "  %v\n", e)
	}
	return b.String()
}

// everything is how often each kind is chosen, of all.
var everything = map[Kind]int{
	Crash: 4, CrashLead: 6, CrashAll: 1, Restart: 2, Isolate: 3, Depose: 3, Freeze: 5, Halves: 3,
	OneWay: 3, Deaf: 3, Storm: 4, Stall: 4,
	Rumour: 2, Lead: 4, Split: 5, Merge: 5, Move: 2, Add: 1, Drain: 1, KillUser: 2, Hesitate: 2, Swing: 2,
	March: 1,
}

// kinds are all kinds, in a fixed order: schedules are made of seeds.
var kinds = []Kind{
	Crash, CrashLead, CrashAll, Restart, Isolate, Depose, Freeze, Halves, OneWay, Deaf, Storm,
	Stall, Rumour, Lead, Split, Move, Add, Drain, KillUser,
	Hesitate, Swing, March, Merge,
}

// plan makes the schedule of a seed: one event after another, that overlap at times,
// within the time. gap is the longest time between the beginnings of two.
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
			// of tablets; half of the time meta, where it can be
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

// manyTablets is more than there are: an event's tablet is one of them, modulo their number.
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
