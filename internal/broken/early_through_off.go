//go:build !broken_early_through

package broken

// EarlyThrough: what is written with its Raft entry becomes visible before both are synced (section 3).
const EarlyThrough = false
