// Package timers fires durable timers when they are due: a job of the node that leads meta.
// Tx.NotifyAfter writes a timer as a cell of the table of timers (mvcc.TimerTable), in the
// transaction that sets it. A firing transaction deletes the cells of due timers and notifies
// their weak columns, so that timers have the guarantees of transactions: none is lost, none
// fires unless the transaction that set it has committed, and concurrent jobs fire it at most
// once.
//
// Invariants:
//  1. A timer fires when its time has passed since the commit of the transaction that set
//     it, by the oracle's time and by the clock of the node that fires it. A timer found earlier
//     is moved to that time.
//  2. The cell is deleted in the transaction that notifies, never before. Timers of columns
//     without a weak observer, such as those of dropped tables, are deleted without notifying.
//  3. Timers that are not due cost nothing: the job keeps the due time of each shard's first
//     timer in memory, and reads again only when that has passed or when a tablet of the table
//     reports writes.
//  4. A turn is bounded: it fires at most 1,024 timers of each shard.
//
// Fired cells stay as history for some minutes, so the job begins to read after the fired ones. A
// transaction that commits late may leave a timer before that position: the job reads all of a
// shard when it starts, and once a minute while the table is written to. It then also counts the
// pending timers, up to ten thousand.
//
// Package node starts the job where meta is led. A crash loses its state in memory, which the
// next one reads again.
package timers
