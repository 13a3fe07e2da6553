//go:build !broken_unconfirmed

package broken

// Unconfirmed: the oracle gives timestamps out of its memory at once without looking whether its node still leads (section 6:
// leadership is confirmed for each batch).
const Unconfirmed = false
