package percolator_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/percolator-go/percolator"
)

type person struct {
	Name string
	Born int `json:",omitempty"`
}

var (
	people = percolator.Typed(column, percolator.JSON[person]())
	counts = percolator.Typed(percolator.Column{Table: "t", Name: "n"}, percolator.Integer[int8]())
)

// TestTypedColumn: Get, GetMulti, Scan and Decode return the values that Set wrote, and none
// for deleted cells.
func TestTypedColumn(t *testing.T) {
	ctx, db, _ := open(t)
	ada, bob := person{"Ada", 1815}, person{Name: "Bob"}
	if err := db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		people.Set(tx, "ada", ada)
		people.Set(tx, "bob", bob)
		people.Set(tx, "eve", person{})
		people.Delete(tx, "eve")
		got, ok, err := people.Get(ctx, tx, "ada")
		if err != nil || !ok || got != ada {
			t.Errorf("in the transaction: %v, %v, %v", got, ok, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s, err := db.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, ok, err := people.Get(ctx, s, "eve"); err != nil || ok || got != (person{}) {
		t.Errorf("deleted: %v, %v, %v", got, ok, err)
	}
	many, err := people.GetMulti(ctx, s, "bob", "eve", "ada")
	if err != nil || len(many) != 2 || many[0].Value != bob || many[1].Row != "ada" ||
		many[1].Value != ada || many[1].CommitTS == 0 {
		t.Errorf("GetMulti: %v, %v", many, err)
	}
	var scanned []person
	for c, err := range people.Scan(ctx, s, percolator.Rows("t").Reverse()) {
		if err != nil {
			t.Fatal(err)
		}
		scanned = append(scanned, c.Value)
	}
	if len(scanned) != 2 || scanned[0] != bob || scanned[1] != ada {
		t.Errorf("Scan: %v", scanned)
	}
	cells, err := s.GetMulti(ctx, people.Key("ada"), counts.Key("ada"))
	if err != nil || len(cells) != 1 {
		t.Fatal(cells, err)
	}
	if got, err := people.Decode(cells[0]); err != nil || got != ada {
		t.Errorf("Decode: %v, %v", got, err)
	}
	if _, err := counts.Decode(cells[0]); !errors.Is(err, percolator.ErrInvalid) {
		t.Errorf("cell of another column: %v, want ErrInvalid", err)
	}
}

// TestDefaultCodecs: without a codec values are JSON, and byte slices as they are.
func TestDefaultCodecs(t *testing.T) {
	vectors, raw := percolator.Typed[[]float32](column), percolator.Typed[[]byte](column)
	data, err := vectors.Codec.Encode([]float32{1, 0.5})
	if err != nil || string(data) != "[1,0.5]" {
		t.Errorf("encoded as %q, %v", data, err)
	}
	if data, err = raw.Codec.Encode([]byte("\xff\"")); err != nil || string(data) != "\xff\"" {
		t.Errorf("encoded as %q, %v", data, err)
	}
	got, err := raw.Codec.Decode(data)
	if data[0] = 'x'; err != nil || string(got) != "\xff\"" {
		t.Errorf("decoded %q, %v", got, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("two codecs were accepted")
		}
	}()
	percolator.Typed(column, percolator.Bytes(), percolator.Bytes())
}

// TestTypedColumnFaults: Get, GetMulti and Scan return an error that names the cell if its
// value cannot be decoded; a value that cannot be encoded fails the commit.
func TestTypedColumnFaults(t *testing.T) {
	ctx, db, _ := open(t)
	if err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		counts.Set(tx, "good", 7)
		tx.Set("high", counts.Column, []byte("128"))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s, err := db.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, ok, getErr := counts.Get(ctx, s, "high")
	_, multiErr := counts.GetMulti(ctx, s, "good", "high")
	var scanErr error
	yielded := 0
	for _, err := range counts.Scan(ctx, s, percolator.Rows("t")) {
		scanErr = err
		yielded++
	}
	if ok || yielded != 2 {
		t.Errorf("ok is %v, the scan yielded %d times", ok, yielded)
	}
	for _, err := range []error{getErr, multiErr, scanErr} {
		var fault *percolator.CodecError
		if !errors.As(err, &fault) || fault.Key != counts.Key("high") || fault.Encode ||
			!strings.Contains(err.Error(), `row "high", column "n" of table "t"`) ||
			!strings.Contains(err.Error(), "out of range") {
			t.Errorf("%v", err)
		}
	}
	amounts := percolator.Typed(column, percolator.JSON[float64]())
	err = db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		counts.Set(tx, "other", 1)
		amounts.Set(tx, "x", math.NaN())
		return nil
	})
	var fault *percolator.CodecError
	if !errors.As(err, &fault) || !fault.Encode || fault.Key.Row != "x" ||
		!strings.Contains(err.Error(), "not committed") {
		t.Errorf("NaN in JSON: %v, want a CodecError", err)
	}
	if _, ok, err := counts.Get(ctx, s, "other"); ok || err != nil {
		t.Errorf("cell of the failed transaction: %v, %v, want none", ok, err)
	}
}

// TestCodecs: each codec decodes what it encodes, in the documented format.
func TestCodecs(t *testing.T) {
	checkCodec(t, percolator.Integer[int64](), math.MinInt64, "-9223372036854775808")
	checkCodec(t, percolator.Integer[uint64](), math.MaxUint64, "18446744073709551615")
	checkCodec(t, percolator.Integer[time.Duration](), time.Second, "1000000000")
	checkCodec(t, percolator.Text[string](), "\xff", "\xff")
	checkCodec(t, percolator.JSON[person](), person{"Ada", 0}, `{"Name":"Ada"}`)
	codec := percolator.Proto[*durationpb.Duration]()
	data, err := codec.Encode(durationpb.New(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := codec.Decode(data); err != nil || !proto.Equal(m, durationpb.New(time.Minute)) {
		t.Errorf("%v, %v", m, err)
	}
	if _, err := codec.Decode([]byte("\xff")); err == nil {
		t.Error("Proto decoded an invalid message")
	}
	if _, err := percolator.Integer[uint8]().Decode([]byte("-1")); err == nil {
		t.Error("Integer[uint8] decoded -1")
	}
}

func checkCodec[T comparable](t *testing.T, codec percolator.Codec[T], v T, want string) {
	t.Helper()
	data, err := codec.Encode(v)
	if err != nil || string(data) != want {
		t.Errorf("%v: %q, %v", v, data, err)
	}
	if got, err := codec.Decode(data); err != nil || got != v {
		t.Errorf("%v became %v, %v", v, got, err)
	}
}
