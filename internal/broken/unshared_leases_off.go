//go:build !broken_unshared_leases

package broken

// UnsharedLeases: one client may take all leases on history.
const UnsharedLeases = false
