//go:build !broken_above_safepoint

package broken

// CollectAboveSafepoint: collection deletes what is above the safepoint as well (section 4, invariant 11).
const CollectAboveSafepoint = false
