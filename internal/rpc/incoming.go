package rpc

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// incoming is a message of operations that is being received. The memory that they take
// is taken from the budget for requests before they are decoded, and given back as they
// are done: until there is room, the stream is not read.
type incoming struct {
	ctx   context.Context // ends when no more work is taken
	share *share
	conn  *clientConn

	batch   pb.OperationBatch
	each    []int  // what each operation takes
	taken   *taken // nil: nothing is held
	refused error  // why the stream ends
	ended   bool   // no more work is taken
}

// decode waits for room and decodes.
func (in *incoming) decode(b []byte) error {
	t := &taken{share: in.share}
	each, all, err := operationsOf(t.few[:0], b)
	if err != nil {
		return err
	}
	if all > in.share.largest() {
		in.refused = status.Errorf(codes.ResourceExhausted,
			"percolator: a message of %d operations takes %d bytes of memory, and may take %d: send fewer in one message", len(each), all, in.share.largest())
		return nil
	}
	if _, ok := in.share.wait(in.ctx, all); !ok { // given back piece by piece
		in.ended = true
		return nil
	}
	t.part = part(all)
	in.each, in.taken = each, t
	in.taken.left.Store(int64(all))
	return proto.Unmarshal(b, &in.batch)
}

// unmarshal is decode for what gRPC has received.
func (in *incoming) unmarshal(data mem.BufferSlice) error {
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	defer in.conn.taken(b.Len())
	return in.decode(b.ReadOnlyData())
}

// taken is what the operations of one message hold of the budget for requests.
type taken struct {
	share *share
	part  int
	left  atomic.Int64 // of operations that are not done
	free  atomic.Int64 // of those that are, and not given back
	few   [8]int       // room for what each takes, if they are not many
}

// done notes that an operation is done that has taken so many bytes. They are given back
// with those of others.
func (t *taken) done(bytes int) {
	free := t.free.Add(int64(bytes))
	if t.left.Add(-int64(bytes)) > 0 && free < largestSmall {
		return
	}
	if n := t.free.Swap(0); n > 0 {
		var h hold
		h[t.part] = n
		t.share.give(h)
	}
}
