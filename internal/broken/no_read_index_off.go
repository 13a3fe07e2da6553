//go:build !broken_no_read_index

package broken

// NoReadIndex: a read is answered without asking the other replicas whether this one still leads (section 5, reads).
const NoReadIndex = false
