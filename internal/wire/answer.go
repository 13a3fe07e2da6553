package wire

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Approximate memory of one entry of an answer in addition to its bytes: the message and what
// it references.
const (
	ResultMemory = 128 // of a Get or RawGet
	cellMemory   = 256
	entryMemory  = 512

	// AnswerOverhead is an upper bound of an answer's memory without its entries, in bytes.
	AnswerOverhead = 1 << 10
)

// AnswerMemory returns the approximate memory of the answer, in bytes.
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

// Capped returns resp, the answer to a read, or a refusal (NoRoom) if its memory exceeds the
// request's MaxAnswerBytes; 0 means no limit. The evaluator calls it before it evaluates the next
// read, so that an oversized answer is never queued.
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

// Failure returns an answer with an error.
func Failure(code pb.Error_Code, format string, args ...any) *pb.TabletResponse {
	return &pb.TabletResponse{Error: &pb.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// NoRoom returns the refusal of a read whose answer needs at least n bytes.
func NoRoom(req *pb.TabletRequest, n int) *pb.TabletResponse {
	return &pb.TabletResponse{Error: &pb.Error{
		Code: pb.Error_CODE_OVERLOADED, NeedsBytes: uint32(n), RetryAfterMs: answerRetry,
		Message: fmt.Sprintf("the answer takes %d bytes, and there is room for %d", n,
			req.GetMaxAnswerBytes()),
	}}
}

// answerRetry is the retry delay that NoRoom returns, in milliseconds.
const answerRetry = 10
