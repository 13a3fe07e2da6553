//go:build broken_replay_from_applied

package broken

// ReplayFromApplied: after a crash entries are applied from where the state says that it is, not from the checkpoint (acknowledged means durable).
const ReplayFromApplied = true
