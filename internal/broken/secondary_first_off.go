//go:build !broken_secondary_first

package broken

// SecondaryFirst: secondaries are committed before the primary (invariant 3).
const SecondaryFirst = false
