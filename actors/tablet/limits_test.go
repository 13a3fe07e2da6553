package tablet

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/store"
)

// TestManyCellsInOneRequest: a request whose effects exceed the store's maximum number of keys is
// refused, and the tablet continues. If the request were proposed, its entry could never be
// applied, after any restart.
func TestManyCellsInOneRequest(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true, MemTableSize: 2 << 20})
	rollback := &pb.RollbackRequest{StartTs: uint64(r.take(1))}
	for i := range store.MaxBatchLen + 1 {
		rollback.Cells = append(rollback.Cells, cellOf(fmt.Sprint(i)))
	}
	e := r.try(2, &pb.TabletRequest{Op: &pb.TabletRequest_Rollback{Rollback: rollback}}).GetError()
	if e.GetCode() != pb.Error_CODE_TOO_LARGE {
		t.Errorf("the rollback is answered %v, want TOO_LARGE", e)
	}
	r.do(2, onePhaseOf(r.take(1), put("a", "1")))
}

// TestManyCellsToRead: the cells of a request are bounded also where they have no effects.
func TestManyCellsToRead(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	e := r.try(2, getOf(r.take(1), make([]string, maxOperationCells+1)...)).GetError()
	if e.GetCode() != pb.Error_CODE_TOO_LARGE {
		t.Errorf("a read of maxOperationCells+1 cells is answered %v, want TOO_LARGE", e)
	}
}

// TestRawGetIsBounded: one small request must not make the node hold a large value many times.
func TestRawGetIsBounded(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	raw := &pb.RawWriteRequest{Writes: put("a", strings.Repeat("x", 1<<20))}
	r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_RawWrite{RawWrite: raw}})
	get := &pb.RawGetRequest{}
	for range 64 {
		get.Cells = append(get.Cells, cellOf("a"))
	}
	if e := r.try(2, &pb.TabletRequest{Op: &pb.TabletRequest_RawGet{RawGet: get}}).GetError(); e.GetCode() != pb.Error_CODE_TOO_LARGE {
		t.Errorf("the raw read is answered %v, want TOO_LARGE", e)
	}
}

// TestSmallStore: batches are cut to the store's maximum, however small.
func TestSmallStore(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true, MemTableSize: 2 << 20})
	value := strings.Repeat("x", 20<<10)
	release := r.hold()
	var answers []<-chan result
	for i := range 50 {
		answers = append(answers, r.start(2, prewriteOf(r.take(1), fmt.Sprint(i), value)))
	}
	r.until(2, "one batch is proposed, the others gather", func(s *pb.StatusResponse) bool {
		return s.Proposals >= 1
	})
	release()
	for _, a := range answers {
		await(t, a)
	}
}

// TestAnswerBeyondItsRoom: a read whose answer exceeds the caller's maximum size is refused where
// it was evaluated, and the refusal states the required size.
func TestAnswerBeyondItsRoom(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	r.do(2, onePhaseOf(r.take(1), put("a", strings.Repeat("x", 1<<20))))
	get := getOf(r.take(1), "a")
	get.MaxAnswerBytes = 4 << 10
	e := r.try(2, get).GetError()
	if e.GetCode() != pb.Error_CODE_OVERLOADED || e.GetNeedsBytes() < 1<<20 {
		t.Fatalf("the read is answered %v, want OVERLOADED that needs 1 MiB or more", e)
	}
	get = getOf(r.take(1), "a")
	get.MaxAnswerBytes = e.NeedsBytes
	if got := r.do(2, get).GetGet().GetResults(); len(got) != 1 || len(got[0].Value) != 1<<20 {
		t.Errorf("answered %d results, want 1 of 1 MiB", len(got))
	}
}

// TestManyValuesBeyondTheirRoom: a read of many long values is refused a few times and then has the
// required size.
func TestManyValuesBeyondTheirRoom(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	const values = 12
	get := getOf(r.take(1), "a")
	for i := range values {
		row := fmt.Sprint("row", i)
		r.do(2, onePhaseOf(r.take(1), put(row, strings.Repeat("x", 400<<10))))
		get.GetGet().Cells = append(get.GetGet().Cells, cellOf(row))
	}
	get.GetGet().At = uint64(r.take(1))
	get.MaxAnswerBytes = 4 << 10
	for tries := 1; ; tries++ {
		resp := r.try(2, proto.CloneOf(get))
		if e := resp.GetError(); e.GetNeedsBytes() > get.MaxAnswerBytes && tries < values {
			get.MaxAnswerBytes = e.NeedsBytes
			continue
		}
		if got := resp.GetGet().GetResults(); len(got) != values+1 ||
			len(got[values].Value) != 400<<10 {
			t.Errorf("answered %v, %d results, want values+1, the last of 400 KiB", resp.GetError(), len(got))
		}
		if tries > 6 {
			t.Errorf("%d tries", tries)
		}
		return
	}
}

// TestTinyCellsFillPages: a page counts the overhead of a cell in addition to its bytes; otherwise
// a page of tiny cells would take a hundred times its limit.
func TestTinyCellsFillPages(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	var writes []*pb.CellWrite
	for i := range 2000 {
		writes = append(writes, put(fmt.Sprint(i), "")...)
	}
	r.do(2, onePhaseOf(r.take(1), writes))
	scan := &pb.ScanRequest{
		At: uint64(r.take(1)), Span: &pb.Span{Table: cellOf("a").Table}, MaxBytes: 64 << 10,
	}
	page := r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_Scan{Scan: scan}}).GetScan()
	if n := len(page.GetCells()); n > 1024 || n == 0 || page.Done {
		t.Errorf("%d cells in a page of 64 KiB", n)
	}
}
