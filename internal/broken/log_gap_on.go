//go:build broken_log_gap

package broken

// LogGap: a replica's write goes in although one before it was refused for good (section 3).
const LogGap = true
