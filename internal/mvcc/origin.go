package mvcc

import "cmp"

// This file has the origins of pending work: the users' commits that caused it (docs/adr/0042). The
// origin of a user's transaction is its own commit. Whatever a run of an observer writes has the
// least origin of the changes that the run was for, so that all that a commit has set off, directly
// or indirectly, has an origin at or below the commit's timestamp. An origin may be too low, which
// only makes a wait longer, but never too high.

// Origins are the origins of the changes that a notification stands for, in two halves: a run must
// be able to remove the least one of those it has seen, else a cell that changes all the time would
// keep it for ever. The first half accepts no changes after Until, so that the next run has seen
// all of it; then the other half becomes the first.
type Origins struct {
	First Timestamp // the least origin of the changes up to Until; 0: the notification's TS
	Until Timestamp // the last change of the first half; 0: the notification's TS, no other half
	Later Timestamp // the least origin of the changes after Until; 0: there are none
}

// Origin returns the least origin of the changes that the notification stands for.
func (n *Notify) Origin() Timestamp {
	first := cmp.Or(n.Origins.First, n.TS)
	if n.Origins.Later == 0 {
		return first
	}
	return min(first, n.Origins.Later)
}

// changed adds a change at ts, which may be older than the newest. Origin 0 is its own.
func (n *Notify) changed(ts, origin Timestamp) {
	origin = min(cmp.Or(origin, ts), ts)
	o := n.Origins
	switch {
	case n.TS == 0:
		o = Origins{First: origin}
	case ts <= cmp.Or(o.Until, n.TS):
		o.First = min(cmp.Or(o.First, n.TS), origin)
	case o.Later == 0:
		o = Origins{First: cmp.Or(o.First, n.TS), Until: n.TS, Later: origin}
	default:
		o.Later = min(o.Later, origin)
	}
	n.TS, n.Origins = max(n.TS, ts), o
	n.shorten()
}

// staleOrigin is the age in milliseconds, relative to the newest change, from which an origin is
// removed by a separate write. Below it, waiting for it takes as long for other reasons, and a cell
// that changes all the time is not rewritten after each run.
const staleOrigin = 20

// covered removes the first half if a run at upTo, which is below TS, has seen all of its changes,
// and its origin is so old (staleOrigin) that this is worth a write. It reports whether it has.
func (n *Notify) covered(upTo Timestamp) bool {
	if n.Origins.Later == 0 || upTo < n.Origins.Until ||
		n.TS.Millis()-n.Origins.First.Millis() < staleOrigin {
		return false
	}
	n.Origins = Origins{First: n.Origins.Later}
	n.shorten()
	return true
}

// shorten omits the origins that equal the notification's own timestamp, as nearly all do.
func (n *Notify) shorten() {
	if n.Origins.Later == 0 && n.Origins.First == n.TS {
		n.Origins.First = 0
	}
}

// From returns the origin of the lock's later write or, for a user's transaction, whose commit is
// unknown, its start.
func (l *Lock) From() Timestamp { return min(cmp.Or(l.Origin, l.StartTS), l.StartTS) }

// From returns the origin of the intent's later notification, as Lock.From does.
func (i *Intent) From(start Timestamp) Timestamp { return min(cmp.Or(i.Origin, start), start) }
