//go:build !broken_early_collect

package broken

// EarlyCollect: safepoints are raised without confirmation (section 4, invariant 11).
const EarlyCollect = false
