// Package expirer deletes the cells of tables with an expiry once they are old enough: a job of the
// node that leads meta. A table's record in meta says after which age its cells expire, by column
// (docs/adr/0068).
//
// Invariants:
//
//  1. A cell is deleted only in a version that was committed longer ago than its age, by the
//     oracle's time and by the clock of this node. The cell is read and deleted in one ordinary
//     transaction, so a version committed in the meantime makes that conflict.
//  2. An expiry is a deletion: readers, observers, history, backups and replicas see nothing else,
//     and a snapshot never changes.
//  3. A rule costs nothing until the oldest cell that the last pass has left is due. Versions
//     committed after a pass are younger than that, and cells with older timestamps come only from
//     restores, during which a table has no rules.
//  4. A turn begins no transaction after a second, and the pause after it is at least as long as
//     the turn. While observers lag behind, a turn does one transaction.
//
// Package node starts the job where meta is led. A crash loses the positions of passes, which the
// next job begins anew; two jobs at once delete the same cells, and one of them conflicts.
package expirer
