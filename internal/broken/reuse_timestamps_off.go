//go:build !broken_reuse_timestamps

package broken

// ReuseTimestamps is off; see reuse_timestamps_on.go.
const ReuseTimestamps = false
