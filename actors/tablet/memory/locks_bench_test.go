package memory

import (
	"fmt"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// BenchmarkLocks adds and removes the locks of a transaction of a hundred rows, alternating with
// those of three others.
func BenchmarkLocks(b *testing.B) {
	table := newLockTable()
	lock := &mvcc.Lock{StartTS: 1}
	var cells [4][]mvcc.Cell
	for i := range 400 {
		for t := range cells {
			if i%4 == t {
				cells[t] = append(cells[t], mvcc.Cell{Table: 7, Row: fmt.Sprintf("document/%08d", t*3_000+i), Column: "cluster"})
			}
		}
	}
	for i := range b.N {
		for _, c := range cells[i%4] {
			if i >= 4 {
				table.remove(c, 0)
			}
			table.put(c, lock, 0)
		}
	}
}
