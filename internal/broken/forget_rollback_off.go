//go:build !broken_forget_rollback

package broken

// ForgetRollback is off; see forget_rollback_on.go.
const ForgetRollback = false
