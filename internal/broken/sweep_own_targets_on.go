//go:build broken_sweep_own_targets

package broken

// SweepOwnTargets: the sweeper looks only after columns whose observers run in its own process.
const SweepOwnTargets = true
