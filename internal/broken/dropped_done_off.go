//go:build !broken_dropped_done

package broken

// DroppedDone is off; see dropped_done_on.go.
const DroppedDone = false
