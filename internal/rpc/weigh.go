package rpc

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// What decoding makes of a message is more than its bytes: an empty cell is two bytes on
// the wire, and a hundred in memory.
const (
	messageMemory = 160 // of a message in a message, with what points to it
	fieldMemory   = 40  // of bytes or a string
	packedMemory  = 8   // of a byte of packed numbers
	deepest       = 16  // levels of messages in messages
)

// shape is what of a type of message decides how much memory it takes: its fields by number.
type shape []shapeField

type shapeField struct {
	message *shape // nil: not a message
	packed  bool   // numbers, many in a field
}

// operationShape is that of pb.Operation.
var operationShape = newShape((&pb.Operation{}).ProtoReflect().Descriptor(), map[protoreflect.FullName]*shape{})

func newShape(d protoreflect.MessageDescriptor, known map[protoreflect.FullName]*shape) *shape {
	if s := known[d.FullName()]; s != nil {
		return s
	}
	s := &shape{}
	known[d.FullName()] = s
	fields := d.Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		for len(*s) <= int(f.Number()) {
			*s = append(*s, shapeField{})
		}
		switch f.Kind() {
		case protoreflect.MessageKind, protoreflect.GroupKind:
			(*s)[f.Number()].message = newShape(f.Message(), known)
		case protoreflect.BytesKind, protoreflect.StringKind:
		default:
			(*s)[f.Number()].packed = true
		}
	}
	return s
}

// requestShape is that of pb.TabletRequest.
var requestShape = newShape((&pb.TabletRequest{}).ProtoReflect().Descriptor(), map[protoreflect.FullName]*shape{})

// shapes are those of the messages of single calls.
var shapes = func() map[protoreflect.FullName]*shape {
	all := map[protoreflect.FullName]*shape{}
	methods := pb.File_percolator_v1_service_proto.Services().ByName("Percolator").Methods()
	for i := range methods.Len() {
		newShape(methods.Get(i).Input(), all)
	}
	return all
}()

// errMalformed: what was sent is no message.
var errMalformed = errors.New("percolator: malformed message")

// weigh is about how much memory a message will take in excess of its bytes.
func (s *shape) weigh(b []byte, depth int) (n int, err error) {
	if depth > deepest {
		return 0, errMalformed
	}
	for len(b) > 0 {
		num, typ, size := protowire.ConsumeTag(b)
		if size < 0 {
			return 0, errMalformed
		}
		b = b[size:]
		if typ != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(num, typ, b); size < 0 {
				return 0, errMalformed
			}
			b = b[size:]
			continue
		}
		v, size := protowire.ConsumeBytes(b)
		if size < 0 {
			return 0, errMalformed
		}
		b = b[size:]
		var f shapeField
		if int(num) < len(*s) {
			f = (*s)[num]
		}
		switch {
		case f.message != nil:
			inside, err := f.message.weigh(v, depth+1)
			if err != nil {
				return 0, err
			}
			n += messageMemory + inside
		case f.packed:
			n += packedMemory * len(v)
		default:
			n += fieldMemory
		}
	}
	return n, nil
}

// heaviest is about how much memory the operations of one message may take once decoded,
// in bytes: less than any server refuses, for it ends the stream then.
const heaviest = 16 << 20

// requestWeight is about how much memory a request of so many bytes takes once decoded;
// never less than operationsOf says. Of short ones it is the most that such a one can
// take.
func requestWeight(req *pb.TabletRequest, bytes int) int {
	const short, worst = 256, messageMemory / 2 // an empty message is two bytes
	if bytes <= short {
		return operationMemory + messageMemory + (worst+1)*bytes
	}
	b, err := proto.Marshal(req)
	if err != nil {
		return bytes // sending it says why
	}
	more, err := requestShape.weigh(b, 1)
	if err != nil {
		return bytes
	}
	return operationMemory + messageMemory + len(b) + more
}

// operationsOf appends about how much memory each operation of an encoded
// pb.OperationBatch will take, and sums it up.
func operationsOf(each []int, b []byte) (_ []int, all int, err error) {
	for len(b) > 0 {
		num, typ, size := protowire.ConsumeTag(b)
		if size < 0 {
			return nil, 0, errMalformed
		}
		b = b[size:]
		if typ != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(num, typ, b); size < 0 {
				return nil, 0, errMalformed
			}
			b = b[size:]
			continue
		}
		v, size := protowire.ConsumeBytes(b)
		if size < 0 {
			return nil, 0, errMalformed
		}
		b = b[size:]
		if num != operationsField {
			continue // unknown
		}
		more, err := operationShape.weigh(v, 0)
		if err != nil {
			return nil, 0, err
		}
		n := operationMemory + len(v) + more
		each, all = append(each, n), all+n
	}
	return each, all, nil
}

const (
	operationsField = 1   // of pb.OperationBatch
	operationMemory = 512 // of one, and of doing it
)
