//go:build !broken_old_copy

package broken

// OldCopy is off; see old_copy_on.go.
const OldCopy = false
