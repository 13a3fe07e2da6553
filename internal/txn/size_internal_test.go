package txn

import (
	"testing"
	"unsafe"
)

// TestTransactionFitsItsClass: a transaction's memory before its first write is most of the
// allocations of a one-cell read, and the allocator has size classes: one field too many costs 128
// bytes.
func TestTransactionFitsItsClass(t *testing.T) {
	const class, header = 1024, 8
	if n := unsafe.Sizeof(Txn{}); n+header > class {
		t.Errorf("a Txn takes %d bytes; at most %d", n, class-header)
	}
}
