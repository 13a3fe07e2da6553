//go:build !broken_torn_seq

package broken

// ReadUncommittedSeq: reads are opened at a sequence whose commit has not returned (section 3).
const ReadUncommittedSeq = false
