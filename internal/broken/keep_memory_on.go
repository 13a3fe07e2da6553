//go:build broken_keep_memory

package broken

// KeepMemory: an oracle that leads again goes on from what it remembers of the term that it had lost (section 6).
const KeepMemory = true
