//go:build broken_no_sync

package broken

// NoSync: nothing is ever synced (section 3; acknowledged means durable).
const NoSync = true
