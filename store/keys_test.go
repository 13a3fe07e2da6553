package store_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

var groups = []mvcc.Group{
	mvcc.GroupWrite, mvcc.GroupHistory, mvcc.GroupData, mvcc.GroupLock, mvcc.GroupRollback,
	mvcc.GroupNotify, mvcc.GroupIntent, mvcc.GroupRaw,
}

func withTS(g mvcc.Group) bool {
	return g == mvcc.GroupHistory || g == mvcc.GroupData || g == mvcc.GroupRollback ||
		g == mvcc.GroupIntent
}

// compareCells is the required order of a group's keys.
func compareCells(g mvcc.Group, a, b mvcc.Cell, ats, bts mvcc.Timestamp) int {
	byColumn := cmp.Or(cmp.Compare(a.Class, b.Class), strings.Compare(a.Column, b.Column))
	order := cmp.Or(strings.Compare(a.Row, b.Row), byColumn)
	if g == mvcc.GroupNotify || g == mvcc.GroupIntent {
		order = cmp.Or(byColumn, strings.Compare(a.Row, b.Row))
	}
	ts := 0
	if withTS(g) {
		ts = cmp.Compare(ats, bts)
	}
	if g == mvcc.GroupHistory {
		ts = -ts // newest first
	}
	return cmp.Or(cmp.Compare(a.Table, b.Table), order, ts)
}

// Keys round-trip and order like their cells, for any bytes (design section 3).
func FuzzKeys(f *testing.F) {
	edges := []string{
		"", "\x00", "\x00\x00", "\x00\x01", "\x00\xff", "\x01", "\xff", "\xff\xff", "a", "a\x00",
		"a\x00b", "a\x01", "b",
	}
	for i, a := range edges {
		for j, b := range edges {
			f.Add(byte(i), uint32(16+i%2), uint32(16+j%2), a, b, "c", edges[(i+j)%len(edges)],
				byte(i&1), byte(j&1), uint64(i), uint64(j))
		}
	}
	f.Add(byte(1), uint32(0), uint32(1<<32-1), "r", "r", "c", "c", byte(255), byte(0),
		uint64(1<<64-1), uint64(0))
	f.Fuzz(func(t *testing.T, group byte, tableA, tableB uint32, rowA, rowB, colA, colB string,
		classA, classB byte, tsA, tsB uint64) {
		g := groups[int(group)%len(groups)]
		a := mvcc.Cell{
			Table: mvcc.TableID(tableA), Row: rowA, Class: mvcc.Class(classA), Column: colA,
		}
		b := mvcc.Cell{
			Table: mvcc.TableID(tableB), Row: rowB, Class: mvcc.Class(classB), Column: colB,
		}
		if !withTS(g) {
			tsA, tsB = 0, 0
		}
		ka := store.AppendKey(nil, g, a, mvcc.Timestamp(tsA))
		kb := store.AppendKey([]byte("kept"), g, b, mvcc.Timestamp(tsB))[len("kept"):]
		for _, k := range []struct {
			key  []byte
			cell mvcc.Cell
			ts   uint64
		}{{ka, a, tsA}, {kb, b, tsB}} {
			gotG, gotC, gotTS, err := store.DecodeKey(k.key)
			if err != nil || gotG != g || gotC != k.cell || uint64(gotTS) != k.ts {
				t.Fatalf("%q decodes as %c %+v %d, %v", k.key, gotG, gotC, gotTS, err)
			}
		}
		want := compareCells(g, a, b, mvcc.Timestamp(tsA), mvcc.Timestamp(tsB))
		if got := bytes.Compare(ka, kb); got != want {
			t.Fatalf("%c: %+v@%d against %+v@%d is %d, their keys %q and %q are %d", g, a, tsA, b,
				tsB, want, ka, kb, got)
		}
	})
}

// For any bytes, DecodeKey returns an error or a key that encodes to the same bytes.
func FuzzDecodeKey(f *testing.F) {
	for _, g := range groups {
		f.Add(store.AppendKey(nil, g, mvcc.Cell{Table: 16, Row: "r\x00", Column: "c"}, 5))
	}
	for _, s := range []string{"", "W", "W\x00\x00\x00\x10", "W\x00\x00\x00\x10r",
		"W\x00\x00\x00\x10r\x00", "W\x00\x00\x00\x10r\x00\x02",
		"N\x00\x00\x00\x10", "T\x00\x00\x00\x00\x00\x00\x00\x01", "W\x00\x00\x00\x10r\x00\x01",
		"H\x00\x00\x00\x10\x00\x01\x00\x00\x01\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, key []byte) {
		g, c, ts, err := store.DecodeKey(key)
		if err != nil {
			if !errors.Is(err, store.ErrBadKey) {
				t.Fatalf("%q: %v is not ErrBadKey", key, err)
			}
			return
		}
		if again := store.AppendKey(nil, g, c, ts); !bytes.Equal(again, key) {
			t.Fatalf("%q decodes to what encodes to %q", key, again)
		}
	})
}

// Records round-trip, through EncodeMutation and through Batch.PutMutation alike.
func FuzzRecords(f *testing.F) {
	f.Add(byte(1), true, uint64(2), uint64(1), uint64(3), uint32(16), "row", "col", byte(1),
		[]byte("value"), "error")
	f.Add(byte(2), false, uint64(1), uint64(1<<63), uint64(0), uint32(0), "", "\x00", byte(0),
		[]byte{}, "")
	f.Fuzz(func(t *testing.T, kind byte, long bool, a, b, c uint64, table uint32, row, col string,
		class byte, value []byte, text string) {
		if len(value) == 0 {
			value = nil
		}
		at := mvcc.Cell{Table: mvcc.TableID(table), Row: row, Class: mvcc.Class(class), Column: col}
		w := mvcc.Write{
			CommitTS: mvcc.Timestamp(a), StartTS: mvcc.Timestamp(b), Kind: mvcc.Kind(kind & 3),
			Long: long, Value: value,
		}
		l := mvcc.Lock{StartTS: mvcc.Timestamp(a), Primary: at, Expiry: mvcc.Timestamp(b),
			Worker: mvcc.Worker{Node: c, Incarnation: a},
			Kind:   mvcc.Kind(kind & 3), Long: long, Value: value, Origin: mvcc.Timestamp(c)}
		async := l // of an asynchronous commit
		async.MinCommitTS = max(1, mvcc.Timestamp(b))
		if long {
			async.Secondaries = []mvcc.Cell{at, {Table: 16, Row: text, Column: col}}
		}
		n := mvcc.Notify{
			TS: mvcc.Timestamp(a), Attempts: uint32(b), ParkedTS: mvcc.Timestamp(c), Replay: long,
			Error: text, Origins: mvcc.Origins{First: mvcc.Timestamp(c), Until: mvcc.Timestamp(b),
				Later: mvcc.Timestamp(a)},
		}
		i := mvcc.Intent{
			Primary: at, Expiry: mvcc.Timestamp(a), Worker: mvcc.Worker{Node: b, Incarnation: c},
			Origin: mvcc.Timestamp(c),
		}
		check := func(m mvcc.Mutation, want any, decode func([]byte) (any, error)) {
			key, v := store.EncodeMutation(&m)
			wantPlain(t, m)
			if got, err := decode(v); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%+v came back as %+v, %v", want, got, err)
			}
			for cut := range v { // no truncated encoding is read as an empty value
				if got, err := decode(v[:cut]); cut == 0 && err == nil {
					t.Fatalf("no bytes decode as %+v", got)
				}
			}
			if g, gc, _, err := store.DecodeKey(key); err != nil || g != m.Group || gc != at {
				t.Fatalf("key of %+v: %c %+v %v", m, g, gc, err)
			}
		}
		check(mvcc.Mutation{Group: mvcc.GroupWrite, Cell: at, Write: &w}, w,
			func(b []byte) (any, error) {
				return any1(store.DecodeWrite(b))
			})
		check(mvcc.Mutation{Group: mvcc.GroupLock, Cell: at, Lock: &l}, l,
			func(b []byte) (any, error) {
				return any1(store.DecodeLock(b))
			})
		check(mvcc.Mutation{Group: mvcc.GroupLock, Cell: at, Lock: &async}, async,
			func(b []byte) (any, error) {
				return any1(store.DecodeLock(b))
			})
		check(mvcc.Mutation{Group: mvcc.GroupNotify, Cell: at, Notify: &n}, n,
			func(b []byte) (any, error) {
				return any1(store.DecodeNotify(b))
			})
		check(mvcc.Mutation{Group: mvcc.GroupIntent, Cell: at, TS: mvcc.Timestamp(c), Intent: &i},
			i, func(b []byte) (any, error) {
				return any1(store.DecodeIntent(b))
			})
	})
}

// wantPlain checks that an encoding for builds without origins has none, and that the mutation
// keeps its own.
func wantPlain(t *testing.T, m mvcc.Mutation) {
	t.Helper()
	e := store.NewEncoder([]mvcc.Mutation{m}, true)
	before := fmt.Sprintf("%+v %+v %+v", m.Lock, m.Notify, m.Intent)
	_, got := e.Encode(&m)
	if after := fmt.Sprintf("%+v %+v %+v", m.Lock, m.Notify, m.Intent); after != before {
		t.Fatalf("encoding has changed %s to %s", before, after)
	}
	switch {
	case m.Lock != nil:
		l := *m.Lock
		l.Origin, m.Lock = 0, &l
	case m.Notify != nil:
		n := *m.Notify
		n.Origins, m.Notify = mvcc.Origins{}, &n
	case m.Intent != nil:
		i := *m.Intent
		i.Origin, m.Intent = 0, &i
	}
	if _, want := store.EncodeMutation(&m); !bytes.Equal(got, want) {
		t.Fatalf("%s is %x without origins, want %x", before, got, want)
	}
}

func any1[T any](v T, err error) (any, error) { return v, err }

// Decoders accept any bytes without a panic.
func FuzzDecodeValues(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{
		1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 255, 255, 255, 255,
		255, 255, 255, 255, 255, 127,
	})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, err := range []error{second(store.DecodeWrite(b)), second(store.DecodeLock(b)),
			second(store.DecodeNotify(b)), second(store.DecodeIntent(b))} {
			if err != nil && !errors.Is(err, store.ErrBadValue) {
				t.Fatalf("%v is not ErrBadValue", err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }
