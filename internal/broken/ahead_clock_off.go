//go:build !broken_ahead_clock

package broken

// AheadClock: time follows the clock of whichever node comes to lead meta, also one that is far ahead of all others (section
// 6: a node whose clock is grossly ahead declines to lead).
const AheadClock = false
