package join

import (
	"strings"
	"testing"

	"github.com/percolator-go/percolator/store"
)

// TestDamagedIdentity: a record that is not JSON, or has no node id, is reported with its fault.
func TestDamagedIdentity(t *testing.T) {
	for _, record := range []string{"{}", "{"} {
		st, err := store.Open(store.Options{InMemory: true, MemTableSize: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		b := &store.Batch{}
		b.PutRecord(identityRecord, []byte(record))
		if err := st.StateWriter().Commit([]*store.Batch{b}); err != nil {
			t.Fatal(err)
		}
		_, err = OpenSelf(st)
		if err == nil || !strings.Contains(err.Error(), "identity is damaged: ") || strings.Contains(err.Error(), "%!") {
			t.Errorf("%q: %v", record, err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
}
