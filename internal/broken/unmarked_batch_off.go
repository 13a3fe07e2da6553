//go:build !broken_unmarked_batch

package broken

// UnmarkedBatch: a batch that is written in several transactions has no marker, so a crash leaves a part of it (ADR 0015).
const UnmarkedBatch = false
