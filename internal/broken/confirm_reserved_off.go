//go:build !broken_confirm_reserved

package broken

// ConfirmReserved: a tablet confirms that all below the bound is settled while a one-phase commit is in flight (section 4,
// invariant 11).
const ConfirmReserved = false
