package tablet

import (
	"fmt"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// observe gives tablet 2 a catalogue with n strong observers of column c, of which all but the
// first have separate notify entries.
func (r *rig) observe(observers int) {
	c := &pb.Catalogue{Version: 1}
	for i := range observers {
		c.Observers = append(c.Observers, &pb.ObserverInfo{
			Name: fmt.Sprintf("observer%d", i), Table: 16, Column: []byte("c"), OwnEntry: i > 0,
		})
	}
	r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_SetCatalogue{
		SetCatalogue: &pb.SetCatalogueRequest{Catalogue: c},
	}})
}

// BenchmarkObservers writes a new value to one of 1024 rows, whose column has 0 to 3 observers, and
// measures a commit's CPU time and the bytes of its effects (docs/adr/0065).
func BenchmarkObservers(b *testing.B) {
	for observers := range 4 {
		b.Run(fmt.Sprint(observers), func(b *testing.B) {
			r := newRig(b, store.Options{Dir: b.TempDir()})
			r.observe(observers)
			b.ResetTimer()
			cpu := cpuTime()
			for i := range b.N {
				r.do(2, onePhaseOf(r.take(1), put(fmt.Sprint(i%1024), "0123456789abcdef")))
			}
			b.ReportMetric(float64((cpuTime()-cpu).Microseconds())/float64(b.N), "cpu-µs/op")
			b.ReportMetric(float64(r.effectBytes(observers)), "effect-bytes/op")
		})
	}
}

// effectBytes returns the bytes that a commit's effects take in the tablet's log entry.
func (r *rig) effectBytes(observers int) int {
	c := mvcc.Cell{Table: 16, Row: "1023", Column: "c"}
	w := &mvcc.Write{CommitTS: r.take(1), StartTS: r.take(1), Kind: mvcc.KindPut, Value: []byte("0123456789abcdef")}
	list := []mvcc.Mutation{
		{Group: mvcc.GroupHistory, Cell: c, TS: w.CommitTS, Write: w}, {Group: mvcc.GroupWrite, Cell: c, Write: w},
	}
	for i := range observers {
		n := c
		if i > 0 {
			n.Class, n.Column = mvcc.ClassAck, fmt.Sprintf("observer%d", i)
		}
		list = append(list, mvcc.Mutation{Group: mvcc.GroupNotify, Cell: n, Notify: &mvcc.Notify{TS: w.CommitTS}})
	}
	return encode(list, false).bytes
}
