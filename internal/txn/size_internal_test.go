package txn

import (
	"testing"
	"unsafe"
)

// TestTransactionFitsItsClass: what a transaction takes before it writes is most of what a
// read of one cell allocates, and the memory that the collector hands out for it comes in
// classes: a field too many costs 128 bytes.
func TestTransactionFitsItsClass(t *testing.T) {
	const class, header = 1024, 8
	if n := unsafe.Sizeof(Txn{}); n+header > class {
		t.Errorf("a Txn takes %d bytes; at most %d", n, class-header)
	}
}
