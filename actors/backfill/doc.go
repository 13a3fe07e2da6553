// Package backfill does the long walks over what an observer observes: back-fills, which
// mark every row that exists to be run for once more, and the removal of what a retired
// observer leaves behind (design section 7). One actor on the node that leads meta does
// both, a bounded step at a time.
//
// Invariants:
//  1. All notifications of one back-fill carry its own timestamp, which is fresh when it begins. So a page that is marked
//     twice, because its record was lost in a crash, makes no strong observer run twice: the acknowledgment of the first
//     run is above that timestamp (§2.4).
//  2. Every row that has a value in the observed column when the back-fill begins is run for at least once after that. Each
//     page is read at the newest state, so that no history has to be kept for as long as a back-fill lasts: a value that
//     is newer than the back-fill is passed over, for its own notification tells the observer, and so does that of a
//     value that was deleted meanwhile. A weak column has no values: every row of the table that exists when its page is
//     read is marked.
//  3. A page is marked before the record says so. A crash repeats a page, never leaves one out.
//  4. No more than MaxWaiting notifications of the observer are made to wait; then the back-fill pauses until it has caught
//     up. One whose observer is paused or linked by nobody waits with it.
//  5. A retired observer's notifications and intents are removed only after every tablet has applied that it is retired, so
//     that no further ones come; its entry in the catalogue goes last. Until then nobody can take its name or its column.
//     Its acknowledgments stay in their rows. They do no harm: a later observer of the name is told of changes after its
//     own registration only, and those are above every acknowledgment of the former one.
//
// Package node spawns it, and wakes it when there is something new to do. It calls meta
// through the interface declared here, and tablets through a txn.Client. The actor blocks
// in its turns: nothing is sent to it but its next one. A crash loses the page that is
// under way: the records in meta say where to go on.
package backfill
