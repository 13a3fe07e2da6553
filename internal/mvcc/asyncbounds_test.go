package mvcc_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
)

// TestNamedCellsAreBounded: a prewrite of an asynchronous commit that names too many cells, or too
// many bytes of cells, is refused.
func TestNamedCellsAreBounded(t *testing.T) {
	for name, c := range map[string]struct{ cells, bytes int }{
		"too many cells": {mvcc.MaxAsyncCells, 10}, "too many bytes": {mvcc.MaxAsyncCells - 1, 100},
	} {
		r := mvcc.PrewriteRequest{StartTS: 1, Primary: mvcc.Cell{Table: 16, Row: "p", Column: "c"}, MinCommitTS: 5}
		r.Writes = []mvcc.CellWriteRequest{{Cell: r.Primary, Kind: mvcc.KindPut}}
		for i := range c.cells {
			row := fmt.Sprintf("%03d%s", i, strings.Repeat("x", c.bytes))
			r.Secondaries = append(r.Secondaries, mvcc.Cell{Table: 16, Row: row, Column: "c"})
		}
		if _, _, err := mvcc.Prewrite(mvcctest.NewMemView(), r, mvcc.DefaultLimits()); !errors.Is(err, mvcc.ErrInvalid) {
			t.Errorf("UNBOUNDED: %s: %v, want ErrInvalid", name, err)
		}
	}
}
