//go:build broken_snapshot_without_locks

package broken

// SnapshotWithoutLocks: the lock group is left out of snapshots (design section 5: a snapshot holds every group).
const SnapshotWithoutLocks = true
