// Package merger takes boundaries between tablets away that nobody needs: between tablets of
// dropped tables, and between small tablets of one table. It also brings to their end merges
// that whoever began them has left half done. It is an actor beside the leader of meta, and
// the counterpart of package splitter.
//
// Invariants:
//  1. A boundary that an operator has asked for stays, and so does one between tables of
//     which the right one has rows or may get some.
//  2. Two tablets of a table are merged only if together they are below a quarter of what
//     either is split at, in size and in load, and have been so for Config.After. So a merge
//     is not undone by a split, nor a split by a merge, for as long as the table is used in
//     the same way.
//  3. One merge is under way at a time. What a merge needs to be safe is not decided here
//     (docs/adr/0053): of two mergers that run at once, one is refused.
//
// A crash loses nothing but the times since when tablets were small.
//
// Called by: node, where meta is led.
package merger
