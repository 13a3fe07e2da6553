//go:build broken_reuse_timestamps

package broken

// ReuseTimestamps: an oracle that takes over begins at its own clock, not above the persisted mark (section 6).
const ReuseTimestamps = true
