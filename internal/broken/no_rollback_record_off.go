//go:build !broken_no_rollback_record

package broken

// NoRollbackRecord: a rollback leaves no record (invariant 4).
const NoRollbackRecord = false
