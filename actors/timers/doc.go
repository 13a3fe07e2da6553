// Package timers fires durable timers when they are due: a job of the node that leads meta.
// Tx.NotifyAfter writes a timer as a cell of the table of timers (mvcc.TimerTable), in the
// transaction that sets it. A firing transaction deletes the cells of timers that are due and
// notifies their weak columns, so that what is known of transactions holds for timers: none is
// lost, none fires unless the transaction that set it has committed, and two jobs at once fire
// it no more than once.
//
// Invariants:
//  1. A timer fires when its time has passed since the commit of the transaction that set
//     it, by the oracle's time and by the clock of the node that fires it. One that is
//     found before is moved to that time.
//  2. The cell goes in the transaction that notifies, never before. Timers of columns without a
//     weak observer, such as those of dropped tables, go without.
//  3. Timers that are not due cost nothing: the job keeps in memory when the first of each
//     shard is due, and looks again only when that has come or when a tablet of the table has
//     been written to, which it is told without reading anything.
//  4. A turn is bounded: it fires a few thousand timers and gives other shards their turn.
//
// Fired cells stay as history for some minutes, so the job reads from behind what it has fired.
// A transaction that commits late may leave a timer before that place: the job reads all of a
// shard when it begins, and once a minute while the table is written to. Then it also counts
// what waits, up to ten thousand.
//
// Package node starts the job where meta is led. A crash loses what it keeps in memory, which
// the next one reads again.
package timers
