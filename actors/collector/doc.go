// Package collector bounds history: the actor beside meta that decides below which
// timestamp old versions may go, and makes sure that nobody needs them any more (design
// section 4, invariant 11; the paper leaves collection to Bigtable, whose cells know how
// many versions to keep).
//
// One cycle has three steps, each a walk over the whole key range of user tables, each repeatable:
//
//	bind     the target is published: every tablet refuses reads and prewrites below it from now on
//	confirm  every tablet says that no lock, intent or one-phase commit that began below the target is left in it; what
//	         is left is resolved, after a limit by force
//	raise    the target becomes every tablet's safepoint; leaders collect below it in their own time
//
// Why the whole range: a transaction's locks may be in one tablet, and the record that
// decides them, the primary's, in another. Were the primary's tablet to collect below a
// timestamp at which a secondary is still locked elsewhere, the decision would be gone,
// and the lock could be neither rolled forward nor back. So no tablet's safepoint is
// raised before every tablet has confirmed; one without garbage too, for a late prewrite
// could put a lock there after it was asked, unless its bound refuses it. What is saved
// on idle repositories is the cycle as a whole: without garbage anywhere nothing is
// published.
//
// Invariants:
//  1. The target is at most the oracle's time less the history, and not above the oldest lease that is in force.
//  2. No tablet gets a safepoint that not every position of the key range has confirmed. Confirmation of a position holds
//     for good: below its bound nothing begins any more, and the tablets that a split makes inherit the bound. A tablet's
//     answer counts for its range only if its epoch is still the same after the answer.
//  3. The record of coverage is durable before what relies on it is sent.
//
// Called by: node, which starts it where meta is led. A crash at any point leaves the
// record in meta at or before the truth; the next collector repeats at most the walk of
// one page of tablets.
package collector
