package percolator

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/internal/txn"
)

// Codec turns values of a type into the bytes of a cell and back. Decode must not keep
// the bytes. Its methods may be called concurrently.
type Codec[T any] interface {
	Encode(v T) ([]byte, error)
	Decode(data []byte) (T, error)
}

// TypedColumn reads and writes a column whose values are of type T. It holds no state:
// a program declares one for each column, beside its schema, and uses it with every
// transaction and snapshot.
//
// Where the bytes are not those of a T, reads return a *CodecError, which names the cell.
type TypedColumn[T any] struct {
	Column Column
	Codec  Codec[T]
}

// TypedCell is a Cell of a TypedColumn.
type TypedCell[T any] struct {
	Row   string
	Value T
	// CommitTS is when it was written; zero for what the reading transaction has buffered.
	CommitTS Timestamp
}

// CodecError says which cell could not be decoded or encoded, and why. It wraps the
// codec's error.
type CodecError struct {
	Key    CellKey
	Encode bool // it was being written
	Err    error
}

// Error names the row, the column and the table.
func (e *CodecError) Error() string {
	what := "decoded"
	if e.Encode {
		what = "encoded"
	}
	return fmt.Sprintf("percolator: row %q, column %q of table %q can't be %s: %v", e.Key.Row,
		e.Key.Column.Name, e.Key.Column.Table, what, e.Err)
}

// Unwrap returns the codec's error.
func (e *CodecError) Unwrap() error { return e.Err }

// Typed returns the column with a codec: Typed(col, JSON[Page]()).
func Typed[T any](col Column, codec Codec[T]) TypedColumn[T] {
	return TypedColumn[T]{Column: col, Codec: codec}
}

// Key is the address of the row's cell.
func (c TypedColumn[T]) Key(row string) CellKey { return CellKey{row, c.Column} }

// Get reads one cell; ok is false, and value the zero T, if it does not exist.
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

// GetMulti reads the cells of many rows at once, in one message per tablet. It returns
// only those that exist, in the order asked.
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

// Scan yields the column's cells in the range, in row order. After an error it ends.
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

// Decode returns the value of a cell of this column that was read by other means, as
// when cells of several columns are read at once. A cell of another column is refused
// with ErrInvalid.
func (c TypedColumn[T]) Decode(cell Cell) (T, error) {
	typed, err := c.typed(cell)
	return typed.Value, err
}

// Set buffers a write. If the value can't be encoded the commit fails with a *CodecError.
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
		return TypedCell[T]{}, txn.Errorf("%w: a cell of column %q of table %q, not of %q of %q",
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

// JSON is the codec of package encoding/json.
func JSON[T any]() Codec[T] { return jsonCodec[T]{} }

// Proto is the codec of protocol buffers: Proto[*pb.Page](). Equal messages are equal
// bytes, as long as the program is the same.
func Proto[M proto.Message]() Codec[M] { return protoCodec[M]{} }

// Integer is the codec of integers as decimal text, as the command line shows them and
// takes them. Decoding a number that T cannot hold is an error.
func Integer[T ~int | ~int8 | ~int16 | ~int32 | ~int64 |
	~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64]() Codec[T] {
	return integerCodec[T]{}
}

// Text is the codec of strings. Any bytes are one.
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
	var none M // a nil pointer, which knows its type
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

type textCodec[T ~string] struct{}

func (textCodec[T]) Encode(v T) ([]byte, error) { return []byte(v), nil }

func (textCodec[T]) Decode(data []byte) (T, error) { return T(data), nil }
