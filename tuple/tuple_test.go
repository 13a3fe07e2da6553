package tuple

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// rank is the order of types and compare the order of elements, both independent of the
// encoding.
func rank(e any) int {
	switch e := e.(type) {
	case []byte:
		return 0
	case string:
		return 1
	case int64, uint64:
		return 2
	case float32:
		return 3
	case float64:
		return 4
	case bool:
		if e {
			return 6
		}
		return 5
	}
	return 7
}

func compare(a, b any) int {
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	switch a := a.(type) {
	case []byte:
		return bytes.Compare(a, b.([]byte))
	case string:
		return strings.Compare(a, b.(string))
	case int64, uint64:
		return integer(a).Cmp(integer(b))
	case float32:
		return compareFloats(float64(a), float64(b.(float32)))
	case float64:
		return compareFloats(a, b.(float64))
	case time.Time:
		return a.Compare(b.(time.Time))
	}
	return 0
}

func integer(e any) *big.Int {
	if n, ok := e.(int64); ok {
		return big.NewInt(n)
	}
	return new(big.Int).SetUint64(e.(uint64))
}

// compareFloats orders -0 before 0; NaN is not drawn.
func compareFloats(a, b float64) int {
	if a == 0 && b == 0 {
		return cmp.Compare(b2i(!math.Signbit(a)), b2i(!math.Signbit(b)))
	}
	return cmp.Compare(a, b)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func compareTuples(a, b []any) int {
	for i := range min(len(a), len(b)) {
		if c := compare(a[i], b[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

func drawElement() *rapid.Generator[any] {
	text := rapid.OneOf(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 'a', 0xff}), 0, 4),
		rapid.SliceOfN(rapid.Byte(), 0, 12))
	small := rapid.Int64Range(-300, 300)
	return rapid.OneOf(
		rapid.Map(text, func(b []byte) any { return b }),
		rapid.Map(text, func(b []byte) any { return string(b) }),
		small.AsAny(), rapid.Int64().AsAny(),
		rapid.SampledFrom([]any{int64(math.MinInt64), int64(math.MaxInt64), int64(0),
			uint64(math.MaxUint64), float64(0), math.Copysign(0, -1), math.Inf(1), math.Inf(-1),
			float32(0), true, false}),
		// smaller ones are parsed as int64
		rapid.Uint64Range(1<<63, math.MaxUint64).AsAny(),
		rapid.Float64().AsAny(), rapid.Float32().AsAny(),
		rapid.Custom(func(t *rapid.T) any {
			return time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "seconds"),
				rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
		}),
	)
}

func drawTuple() *rapid.Generator[[]any] { return rapid.SliceOfN(drawElement(), 0, 4) }

// TestOrder: packed rows sort as their tuples do, have the prefix of a tuple if and only if
// their tuple begins with it, and parse to the packed elements.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawTuple().Draw(t, "a")
		b := drawTuple().Draw(t, "b")
		if rapid.Bool().Draw(t, "related") {
			b = append(a[:rapid.IntRange(0, len(a)).Draw(t, "shared"):len(a)], b...)
		}
		packedA, packedB := Pack(a...), Pack(b...)
		if got, want := strings.Compare(packedA, packedB), compareTuples(a, b); got != want {
			t.Fatalf("%v and %v compare as %d, packed as %d: %x, %x", a, b, want, got, packedA,
				packedB)
		}
		begins := len(a) >= len(b) && compareTuples(a[:len(b)], b) == 0
		if got := strings.HasPrefix(packedA, Prefix(b...)); got != begins {
			t.Fatalf("%v begins with %v: %v, packed: %v", a, b, begins, got)
		}
		elements, err := Parse(packedA)
		if err != nil || compareTuples(elements, a) != 0 {
			t.Fatalf("%v became %v, %v", a, elements, err)
		}
	})
}

// FuzzParse: Parse returns for any bytes, and Pack restores what Parse accepts, so that no
// two rows are the same tuple.
func FuzzParse(f *testing.F) {
	f.Add(Pack("a\x00\x01b", []byte{0}, 0, -1, 1<<40, uint64(math.MaxUint64), int64(math.MinInt64)))
	f.Add(Pack(true, false, 1.5, float32(-1.5), time.Unix(1, 2), math.NaN()))
	f.Add("\x15\x00")                                 // zero is 0x14
	f.Add("\x0c\x00\x00\x00\x00\x00\x00\x00\x00")     // -(2^64-1)
	f.Add("\x20\xff\xa0\x00\x01")                     // a signalling NaN
	f.Add("\x40\x80\x00\x00\x00\x00\x00\x00\x00\xff") // too short
	f.Add("\x02a\x01\x03\x00")                        // invalid escape
	f.Fuzz(func(t *testing.T, row string) {
		elements, err := Parse(row)
		if err != nil {
			var fault *FormatError
			if !errors.As(err, &fault) || fault.Offset < 0 || fault.Offset >= len(row) {
				t.Fatalf("Parse(%q): %#v", row, err)
			}
			return
		}
		if again := Pack(elements...); again != row {
			t.Fatalf("%q is parsed as %v, which is packed as %q", row, elements, again)
		}
	})
}

type (
	city  string
	small uint8
)

// TestNamedTypes: Pack and Unpack treat a named type as its underlying type.
func TestNamedTypes(t *testing.T) {
	row := Pack(city("vienna"), small(7), time.Minute, []byte("x"), float32(2), true,
		uint64(math.MaxUint64))
	var (
		c city
		n small
		d time.Duration
		x any
		f float32
		b bool
		u uint64
	)
	if err := Unpack(row, &c, &n, &d, &x, &f, &b, &u); err != nil {
		t.Fatal(err)
	}
	got := []any{c, n, d, x, f, b, u}
	want := []any{city("vienna"), small(7), time.Minute, []byte("x"), float32(2), true,
		uint64(math.MaxUint64)}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%v, not %v", got, want)
	}
}

// TestUnpackFaults: the error names the element that does not fit.
func TestUnpackFaults(t *testing.T) {
	var (
		s  string
		n8 int8
		u  uint
		f  float32
		np *string
	)
	for _, c := range []struct {
		name  string
		row   string
		into  []any
		index int
	}{
		{"too few", Pack("a"), []any{&s, &s}, -1},
		{"too many", Pack("a", "b"), []any{&s}, -1},
		{"another type", Pack("a", 1), []any{&s, &s}, 1},
		{"bytes for a string", Pack([]byte("a")), []any{&s}, 0},
		{"too great", Pack(300), []any{&n8}, 0},
		{"beyond int64", Pack(uint64(math.MaxUint64)), []any{&n8}, 0},
		{"negative", Pack(-1), []any{&u}, 0},
		{"less precise", Pack(1.5), []any{&f}, 0},
		{"no pointer", Pack("a"), []any{s}, 0},
		{"a nil pointer", Pack("a"), []any{np}, 0},
		{"nothing", Pack("a"), []any{nil}, 0},
	} {
		var fault *ElementError
		if err := Unpack(c.row, c.into...); !errors.As(err, &fault) || fault.Index != c.index {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	var fault *FormatError
	if err := Unpack("plain", &s); !errors.As(err, &fault) {
		t.Errorf("a row that is not a tuple: %v, want a FormatError", err)
	}
}

// TestPackFaults: an unsupported type is an error of TryPack and a panic of Pack.
func TestPackFaults(t *testing.T) {
	for _, e := range []any{nil, []string{"a"}, map[string]int{}, struct{}{}, new(int), 1i} {
		_, err := TryPack("a", e)
		var fault *ElementError
		if !errors.As(err, &fault) || fault.Index != 1 {
			t.Errorf("%T: %v", e, err)
		}
		func() {
			defer func() {
				if r := fmt.Sprint(recover()); !strings.Contains(r, "element 1: type ") {
					t.Errorf("%T: %s", e, r)
				}
			}()
			_ = Pack("a", e)
		}()
	}
}
