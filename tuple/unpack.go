package tuple

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"time"
)

// FormatError reports a row that is not the result of Pack.
type FormatError struct {
	Row    string
	Offset int // offset of the invalid element, in bytes
	Reason string
}

// Error includes the quoted row.
func (e *FormatError) Error() string {
	return fmt.Sprintf("tuple: row %q is not a tuple: byte %d: %s", e.Row, e.Offset, e.Reason)
}

// Parse returns the elements of a row made by Pack. Their types are string, []byte, int64,
// uint64 (above the maximum int64), bool, float32, float64 and time.Time, in UTC. The empty
// row has no elements. The error is a *FormatError.
func Parse(row string) ([]any, error) {
	var elements []any
	for rest := row; rest != ""; {
		e, n, fault := parseElement(rest)
		if fault != "" {
			return nil, &FormatError{row, len(row) - len(rest), fault}
		}
		elements = append(elements, e)
		rest = rest[n:]
	}
	return elements, nil
}

// Unpack stores the elements of a row made by Pack in the variables to which into points, one
// pointer per element. A pointer may have any packable type as its base type, or any. The
// error is a *FormatError if the row was not made by Pack, and an *ElementError if the number
// or the type of elements does not match or a number overflows its variable. Elements before
// the failing one are stored.
func Unpack(row string, into ...any) error {
	elements, err := Parse(row)
	if err != nil {
		return err
	}
	if len(elements) != len(into) {
		return &ElementError{-1, fmt.Sprintf("row %q has %d elements, not %d", row, len(elements),
			len(into))}
	}
	for i, e := range elements {
		p := reflect.ValueOf(into[i])
		if p.Kind() != reflect.Pointer || p.IsNil() {
			return &ElementError{i, fmt.Sprintf("cannot store to %T: not a pointer, or nil", into[i])}
		}
		if !store(p.Elem(), reflect.ValueOf(e)) {
			return &ElementError{i, fmt.Sprintf("cannot store %v (%T) in %v", e, e, p.Type().Elem())}
		}
	}
	return nil
}

// store converts e to the type of to and stores it. It returns false if the kinds differ or a
// number overflows.
func store(to, e reflect.Value) bool {
	switch {
	case to.Kind() == reflect.Interface && e.Type().AssignableTo(to.Type()):
	case to.CanInt() && e.CanInt():
		if to.OverflowInt(e.Int()) {
			return false
		}
	case to.CanUint() && e.CanInt():
		if e.Int() < 0 || to.OverflowUint(uint64(e.Int())) {
			return false
		}
	case to.CanUint() && e.CanUint():
		if to.OverflowUint(e.Uint()) {
			return false
		}
	case to.Kind() != e.Kind() || !e.CanConvert(to.Type()):
		return false
	}
	to.Set(e.Convert(to.Type()))
	return true
}

// parseElement returns the first element and its length in bytes, or the reason why it is
// invalid.
func parseElement(s string) (e any, n int, fault string) {
	code := s[0]
	switch code {
	case codeBytes:
		text, n, fault := parseText(s)
		return text, n, fault
	case codeString:
		text, n, fault := parseText(s)
		return string(text), n, fault
	case codeFalse, codeTrue:
		return code == codeTrue, 1, ""
	case codeFloat32, codeFloat64, codeTime:
		return parseFixed(s)
	}
	if code >= codeZero-8 && code <= codeZero+8 {
		return parseInt(s)
	}
	return nil, 0, fmt.Sprintf("unknown type code %#02x", code)
}

const tooShort = "truncated element"

func parseText(s string) (text []byte, n int, fault string) {
	text = []byte{}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case terminator:
			return text, i + 1, ""
		case escape:
			if i++; i == len(s) {
				return nil, 0, tooShort
			}
			if s[i] != escapedZero && s[i] != escapedOne {
				return nil, 0, fmt.Sprintf("invalid escape %#02x %#02x", escape, s[i])
			}
			text = append(text, s[i]-escapedZero)
		default:
			text = append(text, s[i])
		}
	}
	return nil, 0, tooShort
}

func parseInt(s string) (e any, n int, fault string) {
	size := int(s[0]) - codeZero
	negative := size < 0
	if negative {
		size = -size
	}
	if len(s) <= size {
		return nil, 0, tooShort
	}
	var magnitude uint64
	for _, c := range []byte(s[1 : size+1]) {
		if negative {
			c = ^c
		}
		magnitude = magnitude<<8 | uint64(c)
	}
	switch {
	case (bits.Len64(magnitude)+7)/8 != size:
		return nil, 0, "integer is not in its shortest encoding"
	case negative && magnitude > 1<<63:
		return nil, 0, "integer overflows int64"
	case negative:
		return int64(-magnitude), size + 1, ""
	case magnitude > math.MaxInt64:
		return magnitude, size + 1, ""
	}
	return int64(magnitude), size + 1, ""
}

// parseFixed parses an element of a type with a fixed size.
func parseFixed(s string) (e any, n int, fault string) {
	n = map[byte]int{codeFloat32: 5, codeFloat64: 9, codeTime: 13}[s[0]]
	if len(s) < n {
		return nil, 0, tooShort
	}
	b := []byte(s[1:n])
	switch s[0] {
	case codeFloat32:
		v := binary.BigEndian.Uint32(b)
		return math.Float32frombits(v ^ flip(^v, 32)), n, ""
	case codeFloat64:
		v := binary.BigEndian.Uint64(b)
		return math.Float64frombits(v ^ flip(^v, 64)), n, ""
	}
	nanoseconds := binary.BigEndian.Uint32(b[8:])
	if nanoseconds >= uint32(time.Second) {
		return nil, 0, "nanoseconds of a time exceed a second"
	}
	seconds := int64(binary.BigEndian.Uint64(b) ^ 1<<63)
	return time.Unix(seconds, int64(nanoseconds)).UTC(), n, ""
}
