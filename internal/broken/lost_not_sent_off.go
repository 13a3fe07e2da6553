//go:build !broken_lost_not_sent

package broken

// LostNotSent: a request that was on its way when its node went is said to have not been sent (invariant 8).
const LostNotSent = false
