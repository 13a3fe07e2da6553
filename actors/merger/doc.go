// Package merger merges adjacent tablets: those of dropped tables, and small ones of one table.
// It also completes merges that their coordinator left unfinished. It is an actor on the node
// that leads meta, and the counterpart of package splitter.
//
// Invariants:
//  1. A boundary that an operator has requested stays, and so does one between two tables if
//     the right one has rows or may get some.
//  2. Two tablets in use are merged only if their sum has been at most a quarter of the split
//     threshold, in size and in load, for Config.After. So under a steady load no split undoes
//     a merge and no merge undoes a split. Unused ones are merged at once.
//  3. One merge runs at a time. The safety of a merge does not depend on this package
//     (docs/adr/0053): of two concurrent mergers, one is rejected.
//
// A crash loses only the time for which tablets have been small.
//
// Called by: node, where meta is led.
package merger
