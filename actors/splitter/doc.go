// Package splitter splits tablets that have become too large or too busy (the paper's
// section 2.1: Bigtable splits its tablets automatically; design section 5). Its actor runs
// where meta is led. It periodically checks the status of all tablets and splits those over
// a limit, at the row that halves their size or load. Reads and writes continue during a
// split, which moves no data.
//
// Invariants:
//  1. A tablet is split only at a row that it has proposed itself, which is inside its
//     range and not its first row. A tablet with a single row, or whose load is on a single
//     row, proposes none and is left as it is.
//  2. The meta tablet is never split. The splitter makes no more than MaxTablets tablets.
//  3. After a split by load neither side is split by load again for a minute (cooldown), so that
//     their own loads can be measured first.
//
// Package node starts it. All its state is in memory, on the actor's goroutine: a crash
// loses the cooldowns, and a split that was interrupted is completed by its tablet.
package splitter
