package mvcc

import (
	"fmt"
	"testing"
)

// benchRows is how many rows the benchmarks' tablet holds, each with three versions.
const benchRows = 4096

// benchState is a tablet as the benchmarks find it.
func benchState(b *testing.B) (*MemView, []Cell) {
	b.Helper()
	m := NewMemView()
	m.Columns[ObservedColumn{testTable, "body"}] = ObservedStrong
	cells := make([]Cell, benchRows)
	for i := range cells {
		cells[i] = Cell{Table: testTable, Row: fmt.Sprintf("row%08d", i), Column: "x"}
		for v := range Timestamp(3) {
			r := OnePhaseRequest{
				StartTS: 10*v + 1, Writes: []CellWriteRequest{
					{Cell: cells[i], Kind: KindPut, Value: make([]byte, 100)},
				},
			}
			_, list, err := OnePhaseCommit(m, r, 10*v+2, DefaultLimits())
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

// mustOK ends the benchmark if an operation was refused.
func mustOK(b *testing.B, st Status, err error) {
	if err != nil || st != StatusOK {
		b.Fatal(st, err)
	}
}

func BenchmarkGet(b *testing.B) {
	for name, at := range map[string]Timestamp{"newest": 100, "older": 15} {
		b.Run(name, func(b *testing.B) {
			m, cells := benchState(b)
			for i := range b.N {
				res, err := Get(m, cells[i%benchRows], at)
				mustOK(b, res.Status, err)
			}
		})
	}
}

// BenchmarkPrewrite evaluates without applying: what a leader's turn costs beside its storage.
func BenchmarkPrewrite(b *testing.B) {
	for _, n := range []int{1, 10} {
		b.Run(fmt.Sprintf("cells=%d", n), func(b *testing.B) {
			m, cells := benchState(b)
			value := make([]byte, 100)
			writes := make([]CellWriteRequest, n)
			for i := range b.N {
				for j := range writes {
					writes[j] = CellWriteRequest{
						Cell: cells[(i+j)%benchRows], Kind: KindPut, Value: value,
					}
				}
				res, _, err := Prewrite(m,
					PrewriteRequest{StartTS: 100, Primary: writes[0].Cell, Writes: writes},
					DefaultLimits())
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
				m.PutLock(cells[i], Lock{
					StartTS: 100, Primary: cells[i], Kind: KindPut, Value: make([]byte, 100),
				})
			}
			b.ResetTimer()
			for i := range b.N {
				res, _, err := Commit(m,
					CommitRequest{
						StartTS: 100, CommitTS: 101, Cells: cells[i%benchRows : i%benchRows+1],
					})
				mustOK(b, res.Status, err)
			}
		})
	}
}

func BenchmarkOnePhase(b *testing.B) {
	m, cells := benchState(b)
	writes := []CellWriteRequest{{Kind: KindPut, Value: make([]byte, 100)}}
	for i := range b.N {
		writes[0].Cell = cells[i%benchRows]
		r := OnePhaseRequest{StartTS: 100, Writes: writes}
		res, err := CheckOnePhase(m, r)
		mustOK(b, res.Status, err)
		res, _, err = OnePhaseCommit(m, r, 101, DefaultLimits())
		mustOK(b, res.Status, err)
	}
}

func BenchmarkScan(b *testing.B) {
	m, cells := benchState(b)
	for i := range b.N {
		from := cells[i%(benchRows-100)].Row
		res, err := Scan(m, ScanRequest{
			Span: Span{Table: testTable, Start: from}, At: 100, MaxRows: 100,
		})
		mustOK(b, res.Status, err)
	}
}
