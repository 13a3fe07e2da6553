// Package collector bounds history (design section 4, "Bounded history"; the paper leaves this
// to Bigtable, which limits the number of versions per cell). Its actor runs where meta is
// led. It decides below which timestamp old versions may be removed, and makes sure that
// no transaction needs them any more.
//
// A cycle has three steps. Each is a walk over the whole key range of user tables and can
// be repeated:
//
//	bind     publishes the target: from now on every tablet refuses reads and prewrites
//	         below it
//	confirm  waits until every tablet confirms that it has no lock, intent or one-phase
//	         commit that began below the target, and resolves those that it has, after
//	         Config.ForceAfter by force
//	raise    makes the target every tablet's safepoint; leaders then collect below it
//	         in their own time
//
// The walks cover the whole range because a transaction's locks may be in one tablet and
// the primary's record, which decides them, in another. If the primary's tablet collected
// below a timestamp at which a secondary is still locked elsewhere, the decision would be
// lost and the lock could be neither rolled forward nor back. So no safepoint is raised
// before every tablet has confirmed. Tablets without garbage have to confirm too, since
// only the bound keeps a late prewrite from placing a lock there. An idle cluster saves
// whole cycles instead: none begins while there is no garbage anywhere.
//
// Invariants:
//  1. The target is at most the oracle's time minus History, and not above the oldest
//     timestamp held by a lease in force.
//  2. No tablet gets a safepoint before every position of the key range has confirmed it.
//     A confirmation is final: below its bound nothing begins any more, and the tablets
//     that result from a split inherit the bound. A tablet's answer counts for its range
//     only if its epoch is unchanged after the answer.
//  3. The record of a finished walk is durable before anything that relies on it is sent.
//
// Package node starts it. After a crash the record in meta is never ahead of what has been
// done, and the next collector repeats the visits of at most saveEvery tablets.
package collector
