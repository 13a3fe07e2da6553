package mvcc_test

import (
	"fmt"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
)

// benchRows is the number of rows in the benchmarks' tablet, each with three versions.
const benchRows = 4096

// benchState returns the benchmarks' tablet.
func benchState(b *testing.B) (*mvcctest.MemView, []mvcc.Cell) {
	b.Helper()
	m := mvcctest.NewMemView()
	m.Columns[mvcc.ObservedColumn{Table: testTable, Column: "body"}] = mvcc.ObservedStrong
	cells := make([]mvcc.Cell, benchRows)
	for i := range cells {
		cells[i] = mvcc.Cell{Table: testTable, Row: fmt.Sprintf("row%08d", i), Column: "x"}
		for v := range mvcc.Timestamp(3) {
			r := mvcc.OnePhaseRequest{
				StartTS: 10*v + 1, Writes: []mvcc.CellWriteRequest{
					{Cell: cells[i], Kind: mvcc.KindPut, Value: make([]byte, 100)},
				},
			}
			_, list, err := mvcc.OnePhaseCommit(m, r, 10*v+2, mvcc.DefaultLimits())
			if err != nil {
				b.Fatal(err)
			}
			m.Apply(list)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	return m, cells
}

// mustOK fails the benchmark if an operation was refused.
func mustOK(b *testing.B, st mvcc.Status, err error) {
	if err != nil || st != mvcc.StatusOK {
		b.Fatal(st, err)
	}
}

func BenchmarkGet(b *testing.B) {
	for name, at := range map[string]mvcc.Timestamp{"newest": 100, "older": 15} {
		b.Run(name, func(b *testing.B) {
			m, cells := benchState(b)
			for i := range b.N {
				res, err := mvcc.Get(m, cells[i%benchRows], at)
				mustOK(b, res.Status, err)
			}
		})
	}
}

// BenchmarkPrewrite evaluates without applying: the cost of a leader's turn without its storage.
func BenchmarkPrewrite(b *testing.B) {
	for _, n := range []int{1, 10} {
		b.Run(fmt.Sprintf("cells=%d", n), func(b *testing.B) {
			m, cells := benchState(b)
			value := make([]byte, 100)
			writes := make([]mvcc.CellWriteRequest, n)
			for i := range b.N {
				for j := range writes {
					writes[j] = mvcc.CellWriteRequest{
						Cell: cells[(i+j)%benchRows], Kind: mvcc.KindPut, Value: value,
					}
				}
				res, _, err := mvcc.Prewrite(m,
					mvcc.PrewriteRequest{StartTS: 100, Primary: writes[0].Cell, Writes: writes},
					mvcc.DefaultLimits())
				mustOK(b, res.Status, err)
			}
		})
	}
}

func BenchmarkCommit(b *testing.B) {
	for _, column := range []string{"x", "body"} {
		b.Run("column="+column, func(b *testing.B) {
			m, cells := benchState(b)
			for i := range cells {
				cells[i].Column = column
				m.PutLock(cells[i], mvcc.Lock{
					StartTS: 100, Primary: cells[i], Kind: mvcc.KindPut, Value: make([]byte, 100),
				})
			}
			b.ResetTimer()
			for i := range b.N {
				res, _, err := mvcc.Commit(m,
					mvcc.CommitRequest{
						StartTS: 100, CommitTS: 101, Cells: cells[i%benchRows : i%benchRows+1],
					})
				mustOK(b, res.Status, err)
			}
		})
	}
}

func BenchmarkOnePhase(b *testing.B) {
	m, cells := benchState(b)
	writes := []mvcc.CellWriteRequest{{Kind: mvcc.KindPut, Value: make([]byte, 100)}}
	for i := range b.N {
		writes[0].Cell = cells[i%benchRows]
		r := mvcc.OnePhaseRequest{StartTS: 100, Writes: writes}
		res, err := mvcc.CheckOnePhase(m, r)
		mustOK(b, res.Status, err)
		res, _, err = mvcc.OnePhaseCommit(m, r, 101, mvcc.DefaultLimits())
		mustOK(b, res.Status, err)
	}
}

func BenchmarkScan(b *testing.B) {
	m, cells := benchState(b)
	for i := range b.N {
		from := cells[i%(benchRows-100)].Row
		res, err := mvcc.Scan(m, mvcc.ScanRequest{
			Span: mvcc.Span{Table: testTable, Start: from}, At: 100, MaxRows: 100,
		})
		mustOK(b, res.Status, err)
	}
}
