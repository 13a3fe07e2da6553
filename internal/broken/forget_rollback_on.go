//go:build broken_forget_rollback

package broken

// ForgetRollback: a leader takes a transaction for never rolled back that it has rolled back itself (section 4, invariant 5).
const ForgetRollback = true
