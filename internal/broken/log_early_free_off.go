//go:build !broken_log_early_free

package broken

// LogEarlyFree: segments of the Raft log go before the state they brought about is durable.
const LogEarlyFree = false
