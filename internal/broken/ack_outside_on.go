//go:build broken_ack_outside

package broken

// AckOutside: the acknowledgment is written outside the observer's transaction (section 7).
const AckOutside = true
