// Package backfill does the long walks over an observer's column (design section 7):
// back-fills, which notify the observer of every existing row once more, and the removal
// of what a retired observer leaves behind. One actor on the node that leads meta does
// both, in bounded steps.
//
// Invariants:
//  1. All notifications of a back-fill carry its timestamp, which is fresh when the
//     back-fill begins. A page may be marked twice if a crash loses its record. Even then
//     no strong observer runs twice: the first run's acknowledgment is above the timestamp
//     (§2.4).
//  2. For every row with a value in the observed column when the back-fill begins, the
//     observer runs at least once after that. Each page is read at the newest state, so no
//     history has to be kept for the duration. A value newer than the back-fill is skipped
//     because it has a notification of its own, as has the deletion of a value. A weak
//     column has no values: every row that exists when its page is read is marked.
//  3. A page is marked before its record is stored. A crash repeats a page, and never
//     skips one.
//  4. A back-fill pauses while maxWaiting notifications of its observer wait, so also if the
//     observer is paused or not registered in any process.
//  5. A back-fill below a version marks only rows whose newest acknowledgment, in the snapshot
//     of their page, has a lower version. The snapshot begins after the back-fill, so a row that
//     a newer version has run for before that is not marked, and one that it has run for since
//     is clean (its acknowledgment is above the timestamp). A row run by a lower version after the
//     back-fill has begun is left to the next one; meta's Admin service therefore refuses a
//     back-fill while a node runs one.
//  6. A retired observer's notifications, and, unless its column has another observer, the
//     intents, are removed only after every tablet has applied its retirement, so that no
//     more are written. Its entry in the catalogue is removed last; until then its name and
//     its notify entries cannot be reused. Its acknowledgments
//     stay in their rows and do no harm: a later observer of the same name hears only of
//     changes after its own registration, and those are above all of them.
//
// Package node starts the actor, and wakes it when there is something new to do. It calls
// meta through the interface declared here, and tablets through a txn.Client, and blocks
// meanwhile. A crash loses the page under way; the records in meta say where to resume.
package backfill
