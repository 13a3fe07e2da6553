//go:build !broken_unrestored_journals

package broken

// UnrestoredJournals: what a journal holds is not put back into its log file, so a power loss loses what was acknowledged
// (ADR 0021).
const UnrestoredJournals = false
