//go:build !broken_early_ack

package broken

// EarlyAck: a leader acknowledges what its own log alone holds, before a quorum does (section 5, answers).
const EarlyAck = false
