//go:build !broken_skip_conflict

package broken

// SkipConflictCheck: prewrite ignores newer write records (invariant 2).
const SkipConflictCheck = false
