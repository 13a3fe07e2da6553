// Package pbjson writes protobuf messages as JSON the way this project prints them: field
// names as in the .proto files, every field present, numbers as numbers, and bytes as
// text where they are UTF-8, else as {"base64": "…"}. (protojson would write all bytes as
// base64 and 64-bit numbers as strings.)
package pbjson

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Marshal returns the message as one line of JSON, its fields in alphabetical order. A
// message field that is not set is null, a list that is empty [].
func Marshal(m proto.Message) ([]byte, error) { return json.Marshal(object(m.ProtoReflect())) }

// object turns a message into what encoding/json understands. Recursion ends with the
// message's own depth.
func object(m protoreflect.Message) any {
	if !m.IsValid() {
		return nil
	}
	fields := m.Descriptor().Fields()
	out := make(map[string]any, fields.Len())
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.ContainingOneof() != nil && !m.Has(f) {
			continue // only the member of a oneof that is set
		}
		out[string(f.Name())] = field(f, m.Get(f))
	}
	return out
}

func field(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch {
	case f.IsList():
		list := v.List()
		out := make([]any, list.Len())
		for i := range out {
			out[i] = scalar(f, list.Get(i))
		}
		return out
	case f.IsMap():
		out := map[string]any{}
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			out[k.String()] = scalar(f.MapValue(), v)
			return true
		})
		return out
	}
	return scalar(f, v)
}

func scalar(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return object(v.Message())
	case protoreflect.BytesKind:
		return Bytes(v.Bytes())
	case protoreflect.EnumKind:
		if value := f.Enum().Values().ByNumber(v.Enum()); value != nil {
			return string(value.Name())
		}
		return int32(v.Enum())
	}
	return v.Interface()
}

// Bytes is a byte string in JSON: text where it is UTF-8, else base64, marked.
type Bytes string

type marked struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON is a JSON string, or {"base64": "…"}.
func (b Bytes) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(b)) {
		return json.Marshal(string(b))
	}
	return json.Marshal(marked{[]byte(b)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (b *Bytes) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err == nil {
		*b = Bytes(text)
		return nil
	}
	var m marked
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("pbjson: neither text nor marked base64: %w", err)
	}
	*b = Bytes(m.Base64)
	return nil
}
