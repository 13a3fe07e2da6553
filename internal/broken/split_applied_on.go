//go:build broken_split_applied

package broken

// SplitAppliedIndex: the applied index is written in a Txn of its own, after the effects (section 3).
const SplitAppliedIndex = true
