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

// This file holds the one way in which records of meta are read and changed: a change is
// a conditional write of one or more of them. It owns nothing and runs on its caller's
// goroutine. A copy of a write that was given up for lost may still arrive later; its
// conditions, and values that name their writer, make that harmless.

// records reads and changes the records of the meta tablet: raw cells, each with a
// protobuf message or a few bytes. Every method blocks for at least one round trip to the
// leader of meta, wherever that is.
type records struct{ send route.Sender }

// metaCell returns the cell that holds the record of a row.
func metaCell(row string) *pb.Cell {
	return &pb.Cell{Table: uint32(mvcc.MetaTable), Row: wire.Bytes(row)}
}

// get returns the value of one record, nil if there is none.
func (r records) get(ctx context.Context, row string) ([]byte, error) {
	v, err := r.getAll(ctx, row)
	if err != nil {
		return nil, err
	}
	return v[0], nil
}

// getAll returns the values of records in the order of rows, nil for each that does not
// exist. All are read by one message, but a write may come between two of them: what
// depends on several makes each a condition of its write.
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
		// An empty value exists: it must differ from nil, which conditions take for
		// absent.
		case v.Value == nil:
			out[i] = []byte{}
		default:
			out[i] = v.Value
		}
	}
	return out, nil
}

// load returns the record of row, an empty message if there is none, and the bytes it was
// decoded from, which are nil if there is none.
func load[M proto.Message](ctx context.Context, r records, row string) (M, []byte, error) {
	var m M
	value, err := r.get(ctx, row)
	if err != nil {
		return m, nil, err
	}
	m, err = decode[M](row, value)
	return m, value, err
}

// list returns the records with the prefix in the order of rows, page by page. It is no
// snapshot: a record that is written during the walk may be seen or not.
func list[M proto.Message](ctx context.Context, r records, prefix string) (out []M, err error) {
	// The first row after all those with the prefix: its last byte, a slash, plus one.
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
		// The least row above the last one seen.
		from = wire.String(cells[len(cells)-1].Cell.Row) + "\x00"
	}
}

// update replaces the record of row by what fn makes of it, together with the changes
// that fn returns, and returns the new record.
//
// fn gets nil if there is no record. It may edit the one it gets, and is called again if
// another writer was faster. If it returns the record as it was, nothing is written, nor
// if it returns nil or an empty message where there was none.
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
		// The encoding is deterministic: equal bytes mean that fn has changed nothing.
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

// retry calls fn until it reports done or fails. Between calls it pauses, longer each
// time and with jitter: another writer has won, and the losers must not meet again at
// once.
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

// change is the conditional write of one record: it must have the value old, and gets the
// value value. A nil old means that the record must not exist, a nil value deletes it.
// With keep the condition alone is meant, and value is ignored.
type change struct {
	row        string
	old, value []byte
	keep       bool
}

// swap makes all changes at once if every old value still stands. It returns false if one
// does not.
//
// When an answer was lost the records are read back. If they are as this change makes
// them, it is done: what is written names its writer, or is the same whoever writes it.
// If they are as they were, the change is sent again: should the first copy come later,
// it finds its condition broken. If they are something else, another writer was there,
// before it or after; then false sends the caller to look again, and whatever it does is
// a change of what it finds.
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
		// The one attempt that was made was surely refused. After a lost answer a
		// mismatch may be this change's own earlier copy, so the records are read back.
		case err == nil && !unsure:
			return false, nil
		}
		done, before, readErr := r.readBack(ctx, changes)
		if readErr != nil || done || !before {
			return done, readErr
		}
	}
}

// swapRequest returns the changes as one raw write: all conditions, and the writes of
// those that are more than a condition.
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

// readBack reports how the records stand after a lost answer: done if they are as the
// changes make them, before if they are as they were. Changes that change nothing count
// as before.
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

// nextIDs takes the next n numbers from the counter in row, whose first one is first, and
// returns the lowest of them. A number that was taken is never given out again, also if its
// taker crashes.
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

// counted returns the counter's next number and the change that takes it and the n-1 behind
// it, for a caller that takes them together with other changes.
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
	// Beside the number something that no other writer writes: so that after a lost
	// answer nobody takes another's number for his own.
	value := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, id+uint64(n)), rand.Uint64())
	return id, change{row: row, old: old, value: value}, nil
}

// decode returns the message in the value of row. An absent record, nil, is the empty
// message.
func decode[M proto.Message](row string, value []byte) (M, error) {
	var typed M
	m := typed.ProtoReflect().New().Interface().(M)
	if err := proto.Unmarshal(value, m); err != nil {
		return m, fmt.Errorf("meta: record %s is damaged: %w", row, err)
	}
	return m, nil
}

// encode marshals a record. Equal messages give equal bytes, which conditions rely on,
// and the result is never nil, which would mean that there is no record.
func encode(m proto.Message) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err == nil && b == nil {
		b = []byte{}
	}
	return b, err
}
