//go:build !broken_log_stale_frame

package broken

// LogStaleFrame: what an earlier use of a segment left behind is taken for the log's.
const LogStaleFrame = false
