package meta

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Reads and changes of meta's records: a change is a conditional write of one or more of them. It
// runs on its caller's goroutine. A copy of a write that was presumed lost may still arrive
// later; its conditions, and values that identify their writer, make that harmless.

// records reads and changes the records of the meta tablet: raw cells, each with a protobuf
// message or a few bytes. Every method blocks for at least one round trip to the leader of meta.
type records struct{ send route.Sender }

// metaCell returns the cell that holds the record of a row.
func metaCell(row string) *pb.Cell {
	return &pb.Cell{Table: uint32(mvcc.MetaTable), Row: wire.Bytes(row)}
}

// get returns the value of one record, or nil if there is none.
func (r records) get(ctx context.Context, row string) ([]byte, error) {
	v, err := r.getAll(ctx, row)
	if err != nil {
		return nil, err
	}
	return v[0], nil
}

// getAll returns the values of records in the order of rows, nil for each missing one. All are
// read by one message, but a write may come between two of them: a change that depends on several
// records makes each a condition of its write.
func (r records) getAll(ctx context.Context, rows ...string) ([][]byte, error) {
	cells := make([]*pb.Cell, len(rows))
	for i, row := range rows {
		cells[i] = metaCell(row)
	}
	resp, err := r.send(ctx, cluster.MetaTablet,
		&pb.TabletRequest{Op: &pb.TabletRequest_RawGet{RawGet: &pb.RawGetRequest{Cells: cells}}})
	if err != nil {
		return nil, fmt.Errorf("meta: read %s: %w", rows[0], err)
	}
	out := make([][]byte, len(rows))
	for i, v := range resp.GetRawGet().GetValues() {
		switch {
		case !v.Found:
		// An empty value exists and must differ from nil, which means absent in a condition.
		case v.Value == nil:
			out[i] = []byte{}
		default:
			out[i] = v.Value
		}
	}
	return out, nil
}

// load returns the record of row, an empty message if there is none, and its encoded bytes, nil
// if there is none.
func load[M proto.Message](ctx context.Context, r records, row string) (M, []byte, error) {
	var m M
	value, err := r.get(ctx, row)
	if err != nil {
		return m, nil, err
	}
	m, err = decode[M](row, value)
	return m, value, err
}

// list returns the records with the prefix in the order of rows, page by page. It is not a
// snapshot: a record written during the walk may be missing.
func list[M proto.Message](ctx context.Context, r records, prefix string) (out []M, err error) {
	// The first row after the prefix: its last byte, a slash, plus one.
	end := prefix[:len(prefix)-1] + string(prefix[len(prefix)-1]+1)
	for from := prefix; ; {
		span := mvcc.Span{Table: mvcc.MetaTable, Start: from, End: end, HasEnd: true}
		page, err := r.send(ctx, cluster.MetaTablet,
			&pb.TabletRequest{
				Op: &pb.TabletRequest_RawScan{RawScan: &pb.RawScanRequest{Span: wire.SpanPB(span)}},
			})
		if err != nil {
			return nil, fmt.Errorf("meta: list %s: %w", prefix, err)
		}
		cells := page.GetRawScan().GetCells()
		for _, c := range cells {
			m, err := decode[M](wire.String(c.Cell.Row), c.Value)
			if err != nil {
				return nil, err
			}
			out = append(out, m)
		}
		if page.GetRawScan().GetDone() || len(cells) == 0 {
			return out, nil
		}
		// The smallest row above the last one read.
		from = wire.String(cells[len(cells)-1].Cell.Row) + "\x00"
	}
}

// update replaces the record of row by fn's result, together with the changes that fn returns,
// and returns the new record.
//
// fn gets nil if there is no record. It may edit its argument, and is called again after a
// conflict. Nothing is written if fn returns the record unchanged, or nil or an empty message for
// a missing record.
func update[M proto.Message](ctx context.Context, r records, row string,
	fn func(have M) (to M, with []change, err error)) (M, error) {
	var after, none M
	err := retry(ctx, func() (bool, error) {
		have, old, err := load[M](ctx, r, row)
		if err != nil {
			return false, err
		}
		if old == nil {
			have = none
		}
		var with []change
		if after, with, err = fn(have); err != nil {
			return false, err
		}
		// The encoding is deterministic: equal bytes mean that fn changed nothing.
		value, err := encode(after)
		if err != nil || bytes.Equal(value, old) {
			return true, err
		}
		return r.swap(ctx, append([]change{{row: row, old: old, value: value}}, with...)...)
	})
	if err != nil {
		return none, err
	}
	return after, nil
}

// retry calls fn until it reports done or fails. It pauses between calls, with exponential
// backoff and jitter, so that conflicting writers do not collide again.
func retry(ctx context.Context, fn func() (done bool, err error)) error {
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
		done, err := fn()
		if done || err != nil {
			return err
		}
		if err := txn.Sleep(ctx, wait/2+rand.N(wait)); err != nil {
			return err
		}
	}
}

// change is the conditional write of one record: if its value is old, it becomes value. A nil old
// requires that the record does not exist; a nil value deletes it. With keep it is a condition
// only, and value is ignored.
type change struct {
	row        string
	old, value []byte
	keep       bool
}

// swap makes all changes atomically if every old value is current. It returns false if one is
// not.
//
// After a lost response the records are read back. If they equal the changes' values, the write
// was applied: the values identify their writer, or are the same for every writer. If they equal
// the old values, the changes are sent again; a first copy that arrives later fails its
// condition. Otherwise another writer was there, before or after this one, and false makes the
// caller start over from the current records.
func (r records) swap(ctx context.Context, changes ...change) (bool, error) {
	req := swapRequest(changes)
	for unsure := false; ; unsure = true {
		resp, err := r.send(ctx, cluster.MetaTablet, &pb.TabletRequest{Op: req})
		status := resp.GetMutation().GetStatus()
		switch {
		case err != nil && !errors.Is(err, route.ErrUnknown):
			return false, fmt.Errorf("meta: write %s: %w", changes[0].row, err)
		case err == nil && status == pb.Status_STATUS_OK:
			return true, nil
		case err == nil && status != pb.Status_STATUS_MISMATCH:
			return false, fmt.Errorf("meta: write %s: unexpected status %v", changes[0].row, status)
		// The only attempt was certainly rejected. After a lost response a mismatch may be caused
		// by this change's own earlier copy, so the records are read back.
		case err == nil && !unsure:
			return false, nil
		}
		done, before, readErr := r.readBack(ctx, changes)
		if readErr != nil || done || !before {
			return done, readErr
		}
	}
}

// swapRequest returns the changes as one raw write: all conditions, and the writes of those
// without keep.
func swapRequest(changes []change) *pb.TabletRequest_RawWrite {
	w := &pb.RawWriteRequest{}
	for _, c := range changes {
		w.Conditions = append(w.Conditions,
			&pb.RawCondition{Cell: metaCell(c.row), Absent: c.old == nil, Value: c.old})
		if c.keep {
			continue
		}
		kind := pb.Kind_KIND_PUT
		if c.value == nil {
			kind = pb.Kind_KIND_DELETE
		}
		w.Writes = append(w.Writes, &pb.CellWrite{
			Cell: metaCell(c.row), Kind: kind, Value: c.value,
		})
	}
	return &pb.TabletRequest_RawWrite{RawWrite: w}
}

// readBack reads the records after a lost response: done if they equal the changes' values,
// before if they equal the old values. Changes without an effect count as before.
func (r records) readBack(ctx context.Context, changes []change) (done, before bool, err error) {
	rows := make([]string, len(changes))
	for i, c := range changes {
		rows[i] = c.row
	}
	now, err := r.getAll(ctx, rows...)
	if err != nil {
		return false, false, err
	}
	// Absent (nil) and empty are different values.
	same := func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
	done, before = true, true
	for i, c := range changes {
		before = before && same(now[i], c.old)
		done = done && (c.keep || same(now[i], c.value))
	}
	return done && !before, before, nil
}

// nextIDs reserves the next n numbers of the counter in row, which starts at first, and returns
// the lowest. A reserved number is never returned again, even if the caller crashes.
func (r records) nextIDs(ctx context.Context, row string, first uint64,
	n int) (id uint64, err error) {
	err = retry(ctx, func() (bool, error) {
		var step change
		if id, step, err = r.counted(ctx, row, first, n); err != nil {
			return false, err
		}
		return r.swap(ctx, step)
	})
	return id, err
}

// counted returns the counter's next number and the change that reserves it and the following
// n-1, for a caller that combines it with other changes.
func (r records) counted(ctx context.Context, row string, first uint64,
	n int) (id uint64, step change, err error) {
	old, err := r.get(ctx, row)
	if err != nil {
		return 0, change{}, err
	}
	id = first
	if old != nil {
		// Counters of earlier versions have no random half.
		if len(old) != 8 && len(old) != 16 {
			return 0, change{}, fmt.Errorf("meta: counter %s is damaged", row)
		}
		id = binary.BigEndian.Uint64(old)
	}
	// The number is followed by a random value unique to this writer, so that after a lost
	// response no writer mistakes another's number for its own.
	value := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, id+uint64(n)), rand.Uint64())
	return id, change{row: row, old: old, value: value}, nil
}

// decode returns the message in the value of row. For an absent record (nil) it returns the empty
// message.
func decode[M proto.Message](row string, value []byte) (M, error) {
	var typed M
	m := typed.ProtoReflect().New().Interface().(M)
	if err := proto.Unmarshal(value, m); err != nil {
		return m, fmt.Errorf("meta: record %s is damaged: %w", row, err)
	}
	return m, nil
}

// encode marshals a record. Equal messages give equal bytes, which conditions rely on, and the
// result is never nil, which would mean an absent record.
func encode(m proto.Message) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err == nil && b == nil {
		b = []byte{}
	}
	return b, err
}
