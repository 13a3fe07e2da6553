//go:build !broken_ignore_locks

package broken

// IgnoreLocksOnRead: reads answer past locks (invariant 1).
const IgnoreLocksOnRead = false
