//go:build !broken_log_torn_frame

package broken

// LogTornFrame: a frame of the Raft log that was cut short is taken for whole.
const LogTornFrame = false
