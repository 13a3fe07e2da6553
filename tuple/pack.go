package tuple

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"time"
)

// The first byte of an element is its type code. For an integer it is codeZero plus (or, if
// negative, minus) the number of bytes that follow.
const (
	codeBytes   = 0x01
	codeString  = 0x02
	codeZero    = 0x14
	codeFloat32 = 0x20
	codeFloat64 = 0x21
	codeFalse   = 0x26
	codeTrue    = 0x27
	codeTime    = 0x40
)

// Byte slices and strings end with a terminator, which occurs nowhere else in them: their
// bytes 0 and 1 are escaped as two bytes, in a way that preserves the order.
const (
	terminator  = 0x00
	escape      = 0x01
	escapedZero = 0x01
	escapedOne  = 0x02
)

// ElementError reports an element that cannot be packed, or that does not fit the variable
// to which Unpack stores it.
type ElementError struct {
	Index  int // index of the element, from 0; -1 if the number of elements is wrong
	Reason string
}

// Error names the index of the element.
func (e *ElementError) Error() string {
	if e.Index < 0 {
		return "tuple: " + e.Reason
	}
	return fmt.Sprintf("tuple: element %d: %s", e.Index, e.Reason)
}

// Pack returns the row of the elements. It panics with an *ElementError if an element has an
// unsupported type; use TryPack for elements whose types are not known at compile time. Pack
// does not check the limit of 4 KiB on rows.
func Pack(elements ...any) string {
	row, err := TryPack(elements...)
	if err != nil {
		panic(err)
	}
	return row
}

// TryPack is like Pack but returns an *ElementError instead of panicking.
func TryPack(elements ...any) (string, error) {
	b := make([]byte, 0, 64)
	for i, e := range elements {
		var ok bool
		if b, ok = appendElement(b, e); !ok {
			return "", &ElementError{i, fmt.Sprintf("type %T is not supported: use a string, "+
				"byte slice, integer, bool, float or time", e)}
		}
	}
	return string(b), nil
}

// Prefix returns the common prefix of the rows of all tuples that begin with the elements,
// including the tuple of the elements alone, for use with RowRange.Prefix. It panics as Pack
// does.
func Prefix(elements ...any) string { return Pack(elements...) }

func appendElement(b []byte, e any) (_ []byte, ok bool) {
	switch e := e.(type) { // the common types, without reflection
	case string:
		return appendText(b, codeString, e), true
	case []byte:
		return appendText(b, codeBytes, e), true
	case int:
		return appendInt(b, int64(e)), true
	case int64:
		return appendInt(b, e), true
	case uint64:
		return appendUint(b, e), true
	case float32: // reflection converts it to float64, which changes some NaNs
		n := math.Float32bits(e)
		return binary.BigEndian.AppendUint32(append(b, codeFloat32), n^flip(n, 32)), true
	case time.Time:
		return appendTime(b, e), true
	}
	v := reflect.ValueOf(e)
	switch v.Kind() {
	case reflect.String:
		return appendText(b, codeString, v.String()), true
	case reflect.Bool:
		if v.Bool() {
			return append(b, codeTrue), true
		}
		return append(b, codeFalse), true
	case reflect.Float32:
		return appendElement(b, float32(v.Float()))
	case reflect.Float64:
		n := math.Float64bits(v.Float())
		return binary.BigEndian.AppendUint64(append(b, codeFloat64), n^flip(n, 64)), true
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return appendText(b, codeBytes, v.Bytes()), true
		}
	}
	switch {
	case v.IsValid() && v.CanInt():
		return appendInt(b, v.Int()), true
	case v.IsValid() && v.CanUint():
		return appendUint(b, v.Uint()), true
	}
	return b, false
}

func appendText[T string | []byte](b []byte, code byte, text T) []byte {
	b = append(b, code)
	for _, c := range []byte(text) {
		switch c {
		case 0:
			b = append(b, escape, escapedZero)
		case 1:
			b = append(b, escape, escapedOne)
		default:
			b = append(b, c)
		}
	}
	return append(b, terminator)
}

// appendUint writes the number of significant bytes of n and then these bytes, so that greater
// numbers sort after smaller ones.
func appendUint(b []byte, n uint64) []byte {
	size := (bits.Len64(n) + 7) / 8
	b = append(b, byte(codeZero+size))
	return appendLow(b, n, size)
}

// appendInt writes a negative number as the one's complement of its absolute value.
func appendInt(b []byte, n int64) []byte {
	if n >= 0 {
		return appendUint(b, uint64(n))
	}
	magnitude := -uint64(n)
	size := (bits.Len64(magnitude) + 7) / 8
	b = append(b, byte(codeZero-size))
	return appendLow(b, ^magnitude, size)
}

// appendLow appends the low size bytes of n in big-endian order.
func appendLow(b []byte, n uint64, size int) []byte {
	for i := size - 1; i >= 0; i-- {
		b = append(b, byte(n>>(8*i)))
	}
	return b
}

// flip returns the bits of a float to invert so that floats sort as unsigned integers: all
// bits of a negative float, only the sign bit of others.
func flip[T uint32 | uint64](n T, size int) T {
	sign := T(1) << (size - 1)
	if n&sign != 0 {
		return ^T(0)
	}
	return sign
}

// appendTime writes the seconds since the Unix epoch, with the sign bit inverted, and the
// nanoseconds.
func appendTime(b []byte, t time.Time) []byte {
	b = binary.BigEndian.AppendUint64(append(b, codeTime), uint64(t.Unix())^1<<63)
	return binary.BigEndian.AppendUint32(b, uint32(t.Nanosecond()))
}
