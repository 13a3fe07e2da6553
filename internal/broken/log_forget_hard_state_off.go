//go:build !broken_log_forget_hard_state

package broken

// LogForgetHardState: a HardState goes with the segment that it was written to.
const LogForgetHardState = false
