//go:build !broken_forged_acks

package broken

// ForgedAcks: a client may write observers' acknowledgments.
const ForgedAcks = false
