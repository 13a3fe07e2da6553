//go:build !broken_late_confirmation

package broken

// LateConfirmation is off; see late_confirmation_on.go.
const LateConfirmation = false
