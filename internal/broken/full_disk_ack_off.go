//go:build !broken_full_disk_ack

package broken

// FullDiskAck: a write that the disk had no room for counts as done (section 10).
const FullDiskAck = false
