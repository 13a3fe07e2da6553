//go:build broken_ignore_holds

package broken

// IgnoreHolds: history is collected whatever leases there are (section 4, invariant 11).
const IgnoreHolds = true
