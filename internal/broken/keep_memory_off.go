//go:build !broken_keep_memory

package broken

// KeepMemory is off; see keep_memory_on.go.
const KeepMemory = false
