package percolator

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/internal/txn"
)

// Codec converts values of type T to the bytes of a cell and back. Decode must not retain
// data. Both methods must be safe for concurrent use.
type Codec[T any] interface {
	Encode(v T) ([]byte, error)
	Decode(data []byte) (T, error)
}

// TypedColumn reads and writes a column whose values have type T. It is stateless: a program
// declares one per column and uses it with all transactions and snapshots.
//
// Reads return a *CodecError, which names the cell, if the codec cannot decode its bytes.
type TypedColumn[T any] struct {
	Column Column
	Codec  Codec[T]
}

// TypedCell is a Cell of a TypedColumn.
type TypedCell[T any] struct {
	Row   string
	Value T
	// CommitTS is the commit timestamp; 0 for a write buffered by the reading transaction.
	CommitTS Timestamp
}

// CodecError reports a cell that could not be encoded or decoded. It wraps the codec's error.
type CodecError struct {
	Key    CellKey
	Encode bool  // true: Encode failed; false: Decode failed
	Err    error // of the codec
}

// Error names the row, the column and the table.
func (e *CodecError) Error() string {
	what := "decoded"
	if e.Encode {
		what = "encoded"
	}
	return fmt.Sprintf("percolator: row %q, column %q of table %q cannot be %s: %v", e.Key.Row,
		e.Key.Column.Name, e.Key.Column.Table, what, e.Err)
}

// Unwrap returns the codec's error.
func (e *CodecError) Unwrap() error { return e.Err }

// Typed returns a TypedColumn with the codec, such as Typed(col, Integer[int]()). Without a codec,
// as in Typed[[]float32](col), values are stored as JSON, or unchanged if T is []byte. Typed panics
// if it is given several codecs.
func Typed[T any](col Column, codec ...Codec[T]) TypedColumn[T] {
	switch len(codec) {
	case 0:
		return TypedColumn[T]{Column: col, Codec: defaultCodec[T]()}
	case 1:
		return TypedColumn[T]{Column: col, Codec: codec[0]}
	}
	panic(fmt.Sprintf("percolator: %d codecs for column %q of table %q; it takes one", len(codec),
		col.Name, col.Table))
}

// defaultCodec returns the codec of a column for which none is given.
func defaultCodec[T any]() Codec[T] {
	if codec, ok := any(Bytes()).(Codec[T]); ok {
		return codec
	}
	return JSON[T]()
}

// Key returns the address of the cell in the row.
func (c TypedColumn[T]) Key(row string) CellKey { return CellKey{row, c.Column} }

// Get reads one cell. If it does not exist, value is the zero T and ok is false.
func (c TypedColumn[T]) Get(ctx context.Context, r Reader, row string) (value T, ok bool,
	err error) {
	data, ok, err := r.Get(ctx, row, c.Column)
	if err != nil || !ok {
		return value, false, err
	}
	if value, err = c.decode(row, data); err != nil {
		return value, false, err
	}
	return value, true, nil
}

// GetMulti reads the cells of many rows with one message per tablet. It returns the cells
// that exist, in the order of rows.
func (c TypedColumn[T]) GetMulti(ctx context.Context, r Reader,
	rows ...string) ([]TypedCell[T], error) {
	keys := make([]CellKey, len(rows))
	for i, row := range rows {
		keys[i] = c.Key(row)
	}
	cells, err := r.GetMulti(ctx, keys...)
	if err != nil {
		return nil, err
	}
	typed := make([]TypedCell[T], len(cells))
	for i, cell := range cells {
		if typed[i], err = c.typed(cell); err != nil {
			return nil, err
		}
	}
	return typed, nil
}

// Scan yields the column's cells in the range, in row order. An error is the last element of
// the sequence.
func (c TypedColumn[T]) Scan(ctx context.Context, r Reader,
	rows RowRange) iter.Seq2[TypedCell[T], error] {
	return func(yield func(TypedCell[T], error) bool) {
		for cell, err := range r.Scan(ctx, rows, c.Column) {
			var typed TypedCell[T]
			if err == nil {
				typed, err = c.typed(cell)
			}
			if !yield(typed, err) || err != nil {
				return
			}
		}
	}
}

// Decode returns the value of a cell of this column that the caller read with a Reader, for
// example together with cells of other columns. It returns ErrInvalid for a cell of another
// column.
func (c TypedColumn[T]) Decode(cell Cell) (T, error) {
	typed, err := c.typed(cell)
	return typed.Value, err
}

// Set buffers a write. If the value cannot be encoded, the commit fails with a *CodecError.
func (c TypedColumn[T]) Set(tx *Tx, row string, value T) {
	data, err := c.Codec.Encode(value)
	if err != nil {
		tx.t.Refuse(&CodecError{Key: c.Key(row), Encode: true, Err: err})
		return
	}
	tx.Set(row, c.Column, data)
}

// Delete buffers a deletion.
func (c TypedColumn[T]) Delete(tx *Tx, row string) { tx.Delete(row, c.Column) }

func (c TypedColumn[T]) typed(cell Cell) (TypedCell[T], error) {
	if cell.Column != c.Column {
		return TypedCell[T]{}, txn.Errorf("%w: cell of column %q of table %q, want column %q of table %q",
			ErrInvalid, cell.Column.Name, cell.Column.Table, c.Column.Name, c.Column.Table)
	}
	v, err := c.decode(cell.Row, cell.Value)
	return TypedCell[T]{cell.Row, v, cell.CommitTS}, err
}

func (c TypedColumn[T]) decode(row string, data []byte) (T, error) {
	v, err := c.Codec.Decode(data)
	if err != nil {
		var zero T
		return zero, &CodecError{Key: c.Key(row), Err: err}
	}
	return v, nil
}

// JSON returns a codec that uses package encoding/json.
func JSON[T any]() Codec[T] { return jsonCodec[T]{} }

// Proto returns a codec for protocol buffer messages, such as Proto[*pb.Page](). Encoding is
// deterministic within one build of the program.
func Proto[M proto.Message]() Codec[M] { return protoCodec[M]{} }

// Integer returns a codec for integers as decimal text, the format of the command line.
// Decode returns an error for a number that overflows T.
func Integer[T ~int | ~int8 | ~int16 | ~int32 | ~int64 |
	~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64]() Codec[T] {
	return integerCodec[T]{}
}

// Bytes returns a codec that stores byte slices unchanged. A decoded value belongs to the caller.
func Bytes() Codec[[]byte] { return bytesCodec{} }

// Text returns a codec that stores strings unchanged. It accepts any bytes.
func Text[T ~string]() Codec[T] { return textCodec[T]{} }

type jsonCodec[T any] struct{}

func (jsonCodec[T]) Encode(v T) ([]byte, error) { return json.Marshal(v) }

func (jsonCodec[T]) Decode(data []byte) (v T, err error) {
	err = json.Unmarshal(data, &v)
	return v, err
}

type protoCodec[M proto.Message] struct{}

func (protoCodec[M]) Encode(m M) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

func (protoCodec[M]) Decode(data []byte) (M, error) {
	var none M // a nil pointer, of which ProtoReflect needs only the type
	m := none.ProtoReflect().New().Interface()
	err := proto.Unmarshal(data, m)
	return m.(M), err
}

type integerCodec[T any] struct{}

func (integerCodec[T]) Encode(v T) ([]byte, error) {
	n := reflect.ValueOf(v)
	if n.CanUint() {
		return strconv.AppendUint(nil, n.Uint(), 10), nil
	}
	return strconv.AppendInt(nil, n.Int(), 10), nil
}

func (integerCodec[T]) Decode(data []byte) (v T, err error) {
	to := reflect.ValueOf(&v).Elem()
	if to.CanUint() {
		n, err := strconv.ParseUint(string(data), 10, to.Type().Bits())
		to.SetUint(n)
		return v, err
	}
	n, err := strconv.ParseInt(string(data), 10, to.Type().Bits())
	to.SetInt(n)
	return v, err
}

type bytesCodec struct{}

func (bytesCodec) Encode(v []byte) ([]byte, error) { return v, nil }

func (bytesCodec) Decode(data []byte) ([]byte, error) { return slices.Clone(data), nil }

type textCodec[T ~string] struct{}

func (textCodec[T]) Encode(v T) ([]byte, error) { return []byte(v), nil }

func (textCodec[T]) Decode(data []byte) (T, error) { return T(data), nil }
