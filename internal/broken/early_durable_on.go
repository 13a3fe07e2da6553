//go:build broken_early_durable

package broken

// EarlyDurable: an append to a Raft log counts as durable before the sync that makes it so (section 3).
const EarlyDurable = true
