//go:build !broken_log_no_sync

package broken

// LogNoSync: the Raft log is never synced (acknowledged means durable).
const LogNoSync = false
