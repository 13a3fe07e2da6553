// Package splitter splits tablets that have become too large or too busy (the paper's
// section 2.1: Bigtable splits its tablets by itself; design section 5): the actor beside
// meta that asks every tablet how it is, and cuts those in two that are over a limit,
// where their size or their load halves. Everything goes on meanwhile: a split moves no
// data.
//
// Invariants:
//  1. A tablet is split only at a row that it has named: inside its range, never its first. One with a single row, or whose
//     load is on a single row, names none, hence is left as it is and not tried again and again.
//  2. The meta tablet is never split. There are at most MaxTablets.
//  3. A split by load leaves both sides alone for Cooldown: what their load is must be seen first.
//
// Called by: node, which starts it where meta is led. It remembers nothing that matters:
// a crash loses a cooldown. A split that was cut short is finished by its tablet.
package splitter
