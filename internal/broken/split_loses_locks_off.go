//go:build !broken_split_loses_locks

package broken

// SplitLosesLocks: the right side of a split begins without the locks that it inherits (section 5, split).
const SplitLosesLocks = false
