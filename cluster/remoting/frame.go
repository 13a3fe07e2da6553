package remoting

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/internal/wire"
)

// This file has the frames of a stream. They are checked before they are decoded, because a
// few encoded bytes can take hundreds in memory. All functions are pure.

// The stream has the name that protoactor's remote used, for compatibility with earlier builds
// (docs/adr/0064).
const (
	serviceName = "remote.Remoting"
	streamName  = "Receive"
	method      = "/" + serviceName + "/" + streamName
	// receiver is the actor to which earlier builds address batches.
	receiver = "peers"
)

// batchType is the type of every batch.
var batchType = string((*wire.PeerBatch)(nil).ProtoReflect().Descriptor().FullName())

// Bounds of what another node may send.
const (
	maxFrame   = 64 << 20 // bytes in one frame, as in earlier builds
	maxPayload = 32 << 20 // bytes in one batch, which has at most peer.MaxMessage and its header
	maxFields  = 1 << 10  // in one batch: up to 1,000 messages and the header fields
	maxText    = 1 << 10  // bytes in a name or address
	// maxWelcome is the maximum number of bytes of a frame that a node receives on a connection
	// that it has opened.
	maxWelcome = 4 << 10
)

// codec passes encoded frames through: a mem.BufferSlice is sent, and a *mem.Buffer receives
// one, which the receiver frees.
type codec struct{}

var _ encoding.CodecV2 = codec{}

// Name implements encoding.CodecV2: other nodes may decode frames as protobuf messages.
func (codec) Name() string { return protocodec.Name }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	frame, ok := v.(mem.BufferSlice)
	if !ok {
		return nil, fmt.Errorf("remoting: cannot encode a frame of type %T", v)
	}
	return frame, nil
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	frame, ok := v.(*mem.Buffer)
	if !ok {
		return fmt.Errorf("remoting: cannot decode a frame into %T", v)
	}
	*frame = data.MaterializeToBuffer(mem.DefaultBufferPool())
	return nil
}

// encode encodes a frame. Sending it frees the bytes.
func encode(f *wire.PeerFrame) (mem.BufferSlice, error) {
	return encoding.GetCodecV2(protocodec.Name).Marshal(f)
}

// batchFrame returns the frame of a batch.
func batchFrame(b *wire.PeerBatch) *wire.PeerFrame {
	return &wire.PeerFrame{Kind: &wire.PeerFrame_Delivery{Delivery: &wire.PeerDelivery{
		Type: batchType, Target: receiver, Envelope: &wire.PeerEnvelope{Batch: b},
	}}}
}

// helloFrame returns the first frame of a stream.
func helloFrame() *wire.PeerFrame {
	return &wire.PeerFrame{Kind: &wire.PeerFrame_Hello{Hello: &wire.PeerHello{Server: &wire.PeerServer{}}}}
}

// welcomeFrame returns the answer to helloFrame.
func welcomeFrame() *wire.PeerFrame {
	return &wire.PeerFrame{Kind: &wire.PeerFrame_Welcome{Welcome: &wire.PeerWelcome{}}}
}

// Numbers of fields in peer.proto.
const (
	frameDelivery, frameHello                      = 1, 2
	deliveryType, deliveryTarget, deliveryEnvelope = 1, 2, 3
	envelopeBatch                                  = 2
	helloServer                                    = 2
	maxNumber                                      = 3
)

// message is an encoded message as its fields by number; nil means the field is absent.
type message [maxNumber + 1][]byte

// split returns the fields of an encoded message, each of which must be a string, bytes or a
// message with a number of at most maxNumber, and may occur once.
func split(text []byte) (m message, err error) {
	for len(text) > 0 {
		number, kind, n := protowire.ConsumeTag(text)
		if n < 0 {
			return m, errors.New("not a protobuf message")
		}
		if kind != protowire.BytesType || number > maxNumber {
			return m, fmt.Errorf("unexpected field %d of wire type %d", number, kind)
		}
		value, size := protowire.ConsumeBytes(text[n:])
		if size < 0 {
			return m, errors.New("not a protobuf message")
		}
		if m[number] != nil {
			return m, fmt.Errorf("field %d occurs twice", number)
		}
		m[number], text = value, text[n+size:]
	}
	return m, nil
}

// inner returns the field with the number of an encoded message, which must have no other.
func inner(text []byte, number int) ([]byte, error) {
	m, err := split(text)
	if err != nil {
		return nil, err
	}
	for i, value := range m {
		if (value != nil) != (i == number) {
			return nil, fmt.Errorf("field %d is absent or not the only one", number)
		}
	}
	return m[number], nil
}

// checkHello returns why the frame must not begin a stream, or nil.
func checkHello(frame []byte) error {
	hello, err := inner(frame, frameHello)
	if err != nil {
		return fmt.Errorf("decode the first frame: %w", err)
	}
	server, err := inner(hello, helloServer)
	if err != nil {
		return fmt.Errorf("decode the hello: %w", err)
	}
	names, err := split(server)
	if err != nil {
		return fmt.Errorf("decode the server in the hello: %w", err)
	}
	switch {
	case names[3] != nil:
		return errors.New("the hello has a block list, which this build does not accept")
	case len(names[1]) > maxText || len(names[2]) > maxText:
		return fmt.Errorf("the hello has names of %d and %d bytes; at most %d are allowed",
			len(names[1]), len(names[2]), maxText)
	}
	return nil
}

// checkBatch returns why a frame that is not the first must be refused, or nil.
func checkBatch(frame []byte) error {
	delivery, err := inner(frame, frameDelivery)
	if err != nil {
		return fmt.Errorf("decode the frame: %w", err)
	}
	m, err := split(delivery)
	switch {
	case err != nil:
		return fmt.Errorf("decode the delivery: %w", err)
	case string(m[deliveryType]) != batchType:
		return fmt.Errorf("message type is %.64q, want a batch", m[deliveryType])
	case string(m[deliveryTarget]) != receiver:
		return fmt.Errorf("batch for the unknown target %.64q", m[deliveryTarget])
	}
	batch, err := inner(m[deliveryEnvelope], envelopeBatch)
	switch {
	case err != nil:
		return fmt.Errorf("decode the envelope: %w", err)
	case len(batch) > maxPayload:
		return fmt.Errorf("batch of %d bytes; at most %d are allowed", len(batch), maxPayload)
	}
	if n := countFields(batch); n < 0 || n > maxFields {
		return fmt.Errorf("batch of %d fields (-1: undecodable); at most %d are allowed", n, maxFields)
	}
	return nil
}

// countFields counts the top-level fields of an encoded message and stops above maxFields. It
// returns -1 if the text is not a message.
func countFields(text []byte) int {
	n := 0
	for ; len(text) > 0 && n <= maxFields; n++ {
		_, _, size := protowire.ConsumeField(text)
		if size < 0 {
			return -1
		}
		text = text[size:]
	}
	return n
}

// decode decodes a frame that was checked.
func decode(frame []byte) (*wire.PeerFrame, error) {
	f := &wire.PeerFrame{}
	if err := proto.Unmarshal(frame, f); err != nil {
		return nil, err
	}
	return f, nil
}
