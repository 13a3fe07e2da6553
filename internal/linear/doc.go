// Package linear decides with Porcupine whether what clients saw of registers, and of the
// timestamp oracle, is what one of each in a single place could have shown them: whether
// the history is linearizable.
//
// Registers are cells that transactions of one cell read, write, or read and replace.
// Snapshot isolation (§2.2) alone does not promise their linearizability; that every
// transaction takes its timestamps from the oracle within its own time (§2.3) does: a
// write takes effect at its commit timestamp, a read at its start timestamp. It is what
// notices a read by a leader that was deposed, or an acknowledged write that was lost.
//
// The oracle promises strictly increasing timestamps: one handed out after another is
// greater (design section 6).
//
// Invariants:
//  1. The values written to one register are different, so that a read names its write.
//  2. A change with an unknown outcome counts once anybody has read it, and then has no
//     end; else it is left out, which changes nothing: what nobody has read may as well
//     have been done after everything else.
//
// The functions are pure, but for the patience that bounds them: deciding takes
// exponential time in the number of changes under way at once. Called by tests' workloads
// with what their clients saw.
package linear
