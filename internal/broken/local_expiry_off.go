//go:build !broken_local_expiry

package broken

// LocalExpiry: a lock has expired when this machine's clock says so, not the oracle's (invariant 6 of design section 4).
const LocalExpiry = false
