// Package pbjson encodes protobuf messages as this project's JSON: field names as in the .proto
// files, every field present except unset optional fields and members of oneofs, numbers as
// numbers, and bytes as text if they are UTF-8, else as {"base64": "…"}. (protojson encodes all
// bytes as base64 and 64-bit numbers as strings.)
package pbjson

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Marshal returns the message as one line of JSON, with fields in alphabetical order. An unset
// message field is null, an empty list [].
func Marshal(m proto.Message) ([]byte, error) { return json.Marshal(object(m.ProtoReflect())) }

// object converts a message to values for encoding/json. The message's depth bounds the recursion.
func object(m protoreflect.Message) any {
	if !m.IsValid() {
		return nil
	}
	fields := m.Descriptor().Fields()
	out := make(map[string]any, fields.Len())
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.ContainingOneof() != nil && !m.Has(f) {
			continue // an unset member of a oneof
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

// Bytes is a byte string that encodes to text if it is UTF-8, else to {"base64": "…"}.
type Bytes string

type marked struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON implements json.Marshaler.
func (b Bytes) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(b)) {
		return json.Marshal(string(b))
	}
	return json.Marshal(marked{[]byte(b)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (b *Bytes) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err == nil {
		*b = Bytes(text)
		return nil
	}
	var m marked
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("pbjson: neither text nor an object with base64: %w", err)
	}
	*b = Bytes(m.Base64)
	return nil
}
