package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// jsonCodec encodes messages as JSON. It refuses unknown fields: a misspelled condition must not make a
// write unconditional. Its value is the name in the content type.
type jsonCodec string

// Name implements connect.Codec.
func (c jsonCodec) Name() string { return string(c) }

// Marshal implements connect.Codec.
func (jsonCodec) Marshal(m any) ([]byte, error) {
	msg, ok := m.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("gateway: %T is not a message", m)
	}
	text, err := protojson.Marshal(msg)
	if err != nil {
		return nil, err
	}
	// protojson inserts spaces that differ between builds.
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return nil, err
	}
	return compact.Bytes(), nil
}

// Unmarshal implements connect.Codec.
func (jsonCodec) Unmarshal(data []byte, m any) error {
	msg, ok := m.(proto.Message)
	if !ok {
		return fmt.Errorf("gateway: %T is not a message", m)
	}
	if len(data) == 0 {
		return fmt.Errorf("no JSON object: send {} for an empty request")
	}
	return protojson.Unmarshal(data, msg)
}
