package rpc

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	codecs "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/broken"
)

// codec is gRPC's for protobuf, but for messages that are accounted for.
type codec struct {
	encoding.CodecV2
	large chan struct{} // one place for each large message that is being encoded
}

// largeAtOnce is how many large messages are encoded at once: each is in memory twice meanwhile.
const largeAtOnce = 4

func newCodec() codec {
	return codec{encoding.GetCodecV2(codecs.Name), make(chan struct{}, largeAtOnce)}
}

// outgoing is a message of answers. Encoding takes the answers out of it: while gRPC
// waits for the client, only what is encoded is in memory, and not the answers too.
type outgoing struct {
	answers *pb.OperationResults
	bytes   int // that it takes, about
}

// marshal encodes the answer into a buffer that ends the call when gRPC has written it.
func (v *unread) marshal() (mem.BufferSlice, error) {
	m := v.message
	size := proto.Size(m)
	v.message = nil
	// Smaller ones gRPC does not tell of; beyond the bound on calls there are as many as
	// a connection may have streams.
	if mem.IsBelowBufferPoolingThreshold(size) {
		defer v.call.end()
		b, err := proto.Marshal(m)
		return mem.BufferSlice{mem.SliceBuffer(b)}, err
	}
	b, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 0, size), m)
	if err != nil {
		v.call.end()
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(&b, written{v.call})}, nil
}

// written is where gRPC puts a buffer that it has written out.
type written struct{ call *single }

// Get implements mem.BufferPool; nothing is taken from it.
func (written) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// Put implements mem.BufferPool.
func (w written) Put(*[]byte) { w.call.end() }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case *outgoing:
		m := v.answers
		if !broken.KeepAnswers {
			v.answers = nil
		}
		if v.bytes > largestSmall {
			c.large <- struct{}{}
			defer func() { <-c.large }()
		}
		return c.CodecV2.Marshal(m)
	case *unread:
		return v.marshal()
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2. What a large request would take is looked at
// before it is decoded.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch v := v.(type) {
	case *incoming:
		return v.unmarshal(data)
	case proto.Message:
		s := shapes[v.ProtoReflect().Descriptor().FullName()]
		if data.Len() <= largestSmall || s == nil {
			break
		}
		b := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer b.Free()
		c.large <- struct{}{}
		defer func() { <-c.large }()
		n, err := s.weigh(b.ReadOnlyData(), 0)
		if n += b.Len(); err == nil && n > largestRequest {
			err = fmt.Errorf("the request takes %d bytes of memory, and may take %d", n, largestRequest)
		}
		if err != nil {
			return err
		}
		return proto.Unmarshal(b.ReadOnlyData(), v)
	}
	return c.CodecV2.Unmarshal(data, v)
}

// largestRequest is the most that a single call's request may take, in bytes.
const largestRequest = 2 * maxMessage
