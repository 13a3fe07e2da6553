//go:build broken_late_confirmation

package broken

// LateConfirmation: a batch of the oracle is served by a confirmation that was asked for before it was closed, for one that a
// panic has ended (section 6).
const LateConfirmation = true
