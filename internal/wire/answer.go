package wire

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// What one entry of an answer takes beside its bytes, about: the message and what it points to.
const (
	ResultMemory = 128 // of a Get
	cellMemory   = 256
	entryMemory  = 512

	// AnswerOverhead is what an answer takes beside its entries, and more.
	AnswerOverhead = 1 << 10
)

// AnswerMemory is about how much memory the answer takes, in bytes.
func AnswerMemory(resp *pb.TabletResponse) int {
	n := proto.Size(resp)
	switch r := resp.GetResult().(type) {
	case *pb.TabletResponse_Get:
		n += ResultMemory * len(r.Get.GetResults())
	case *pb.TabletResponse_Scan:
		n += cellMemory * len(r.Scan.GetCells())
	case *pb.TabletResponse_RawGet:
		n += ResultMemory * len(r.RawGet.GetValues())
	case *pb.TabletResponse_RawScan:
		n += cellMemory * len(r.RawScan.GetCells())
	case *pb.TabletResponse_Walk:
		n += entryMemory * len(r.Walk.GetEntries())
	case *pb.TabletResponse_History:
		n += entryMemory * len(r.History.GetEntries())
	case *pb.TabletResponse_Mutation:
		n += entryMemory * len(r.Mutation.GetLocks())
	}
	return n
}

// Capped is the answer to a read, or the refusal of it if the answer is larger than the
// request allows. Who evaluates the read calls it before it does the next one: what is
// refused never waits anywhere.
func Capped(req *pb.TabletRequest, resp *pb.TabletResponse) *pb.TabletResponse {
	if req.GetMaxAnswerBytes() == 0 || resp.GetError() != nil {
		return resp
	}
	n := AnswerMemory(resp)
	if n <= int(req.MaxAnswerBytes) {
		return resp
	}
	return NoRoom(req, n)
}

// Failure returns an answer that is an error.
func Failure(code pb.Error_Code, format string, args ...any) *pb.TabletResponse {
	return &pb.TabletResponse{Error: &pb.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// NoRoom is the refusal of a read of which the answer takes so many bytes, or at least so many.
func NoRoom(req *pb.TabletRequest, n int) *pb.TabletResponse {
	return &pb.TabletResponse{Error: &pb.Error{
		Code: pb.Error_CODE_OVERLOADED, NeedsBytes: uint32(n), RetryAfterMs: answerRetry,
		Message: fmt.Sprintf("the answer takes %d bytes, and there is room for %d", n,
			req.GetMaxAnswerBytes()),
	}}
}

// answerRetry is when there may be room, in milliseconds.
const answerRetry = 10
