package console

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Row keys may be names or addresses of people. A user who has not logged in to a node with
// certificates sees, in place of each key at which a tablet begins or ends, its number in the order
// of these keys, such as #03, and # in place of any other row.

// keyless is the view of such a user.
type keyless struct{ rpc.View }

// Key implements httpd.View.
func (v keyless) Key() string { return "no keys " + v.View.Key() }

// HidesKeys implements httpd.View.
func (keyless) HidesKeys(uint32) bool { return true }

// Narrow implements httpd.View. It clears all bytes but names of columns, so that a field that is
// added to a message is hidden too.
func (v keyless) Narrow(m proto.Message) proto.Message {
	if m = v.View.Narrow(m); m == nil {
		return nil
	}
	m = proto.Clone(m) // it may be shared
	var bounds []wire.Position
	walk(m.ProtoReflect(), func(m protoreflect.Message) {
		if d, ok := m.Interface().(*pb.TabletDescriptor); ok {
			end, _ := wire.EndOf(d)
			bounds = append(bounds, wire.StartOf(d), end)
		}
	})
	slices.SortFunc(bounds, func(a, b wire.Position) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Row, b.Row))
	})
	bounds = slices.Compact(bounds)
	numbers := make(map[wire.Position]int, len(bounds))
	for i, at := range bounds {
		numbers[at] = i
	}
	number := func(at wire.Position) []byte {
		if at.Row == "" {
			return nil
		}
		return []byte(keyNumber(numbers[at], len(bounds)))
	}
	walk(m.ProtoReflect(), func(m protoreflect.Message) {
		if d, ok := m.Interface().(*pb.TabletDescriptor); ok {
			end, _ := wire.EndOf(d)
			d.StartRow, d.EndRow = number(wire.StartOf(d)), number(end)
			return
		}
		m.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
			switch {
			case f.Kind() != protoreflect.BytesKind || f.Name() == "column":
			case f.Name() == "row":
				m.Set(f, protoreflect.ValueOfBytes([]byte("#")))
			default:
				m.Clear(f)
			}
			return true
		})
	})
	return m
}

// keyNumber returns the text that stands for the key with the index among n keys. Texts sort as their
// keys do.
func keyNumber(index, n int) string { return fmt.Sprintf("#%0*d", len(fmt.Sprint(n)), index) }

// walk calls visit for the message and all messages in it.
func walk(m protoreflect.Message, visit func(protoreflect.Message)) {
	visit(m)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					walk(v.Message(), visit)
					return true
				})
			}
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				walk(v.List().Get(i).Message(), visit)
			}
		default:
			walk(v.Message(), visit)
		}
		return true
	})
}
