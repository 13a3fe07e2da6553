// Package linear decides with Porcupine whether the histories of registers and of the timestamp
// oracle, as recorded by clients, are linearizable.
//
// Registers are cells that single-cell transactions read, write, or read and replace. Snapshot
// isolation (§2.2) alone does not make them linearizable. They are linearizable because every
// transaction gets its timestamps from the oracle between its call and its return (§2.3): a write
// takes effect at its commit timestamp, a read at its start timestamp. The check detects reads by a
// deposed leader and lost acknowledged writes.
//
// The oracle's timestamps strictly increase: one issued after another is greater (design section 6).
//
// Invariants:
//  1. The values written to one register are distinct, so that a read identifies its write.
//  2. A change with an unknown outcome counts, without an end, if any operation read it. Otherwise it
//     is omitted, which is equivalent: an unread change may have happened after everything else.
//
// The functions are pure except for their time limit: deciding takes exponential time in the number
// of concurrent changes. Tests' workloads call them with their clients' histories.
package linear
