//go:build !broken_forget_attempts

package broken

// ForgetAttempts: how often a run has failed is not kept in its notification (design section 7).
const ForgetAttempts = false
