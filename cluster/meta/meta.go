package meta

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Meta reads and changes the cluster's own tables: raw cells of the meta tablet, each a
// protobuf message, changed by conditional writes.
//
// It keeps no copy of them, so any number of goroutines and nodes may use it at once.
// Every method runs on its caller's goroutine and blocks for at least one round trip to
// the leader of meta, wherever that is. What can be in flight is a conditional write
// whose answer was lost; swap finds out what became of it.
type Meta struct {
	send   route.Sender
	router *route.Router

	// ddl serializes this node's schema changes, so that they do not fail each other's
	// conditional writes.
	ddl ddlLock
	// pushed is the newest catalogue version that this process itself has told every
	// tablet.
	pushed atomic.Uint64
}

// NewMeta returns a Meta that reaches the meta tablet by send and finds user tablets by
// router.
func NewMeta(send route.Sender, router *route.Router) *Meta {
	return &Meta{send: send, router: router, ddl: newDDLLock()}
}

// The rows of meta's records.
const (
	rowNextTable   = "next/table"
	rowNextTablet  = "next/tablet"
	rowCatalogue   = "catalogue"
	rowCollection  = "collect"
	rowLeases      = "holds"
	prefixTable    = "table/"
	prefixCreating = "creating/"
	prefixDropped  = "dropped/"
	prefixTablet   = "tablet/"
)

// metaCell returns the cell that holds the record of a row.
func metaCell(row string) *pb.Cell {
	return &pb.Cell{Table: uint32(mvcc.MetaTable), Row: wire.Bytes(row)}
}

// tabletRow returns the row of a tablet in the tablet map.
func tabletRow(id uint64) string { return prefixTablet + strconv.FormatUint(id, 10) }

// get returns the value of one record, nil if there is none.
func (m *Meta) get(ctx context.Context, row string) ([]byte, error) {
	v, err := m.getAll(ctx, row)
	if err != nil {
		return nil, err
	}
	return v[0], nil
}

// getAll returns the values of records in the order of rows, nil for each that does not
// exist. All are read by one message, but a write may come between two of them: what
// depends on several makes each a condition of its write.
func (m *Meta) getAll(ctx context.Context, rows ...string) ([][]byte, error) {
	cells := make([]*pb.Cell, len(rows))
	for i, row := range rows {
		cells[i] = metaCell(row)
	}
	r, err := m.send(ctx, cluster.MetaTablet,
		&pb.TabletRequest{Op: &pb.TabletRequest_RawGet{RawGet: &pb.RawGetRequest{Cells: cells}}})
	if err != nil {
		return nil, fmt.Errorf("meta: read %s: %w", rows[0], err)
	}
	out := make([][]byte, len(rows))
	for i, v := range r.GetRawGet().GetValues() {
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

// retry calls fn until it reports done or fails. Between calls it pauses, longer each
// time and with jitter: another writer has won, and the losers must not meet again at
// once.
func retry(ctx context.Context, fn func() (done bool, err error)) error {
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
		done, err := fn()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait/2 + rand.N(wait)):
		}
	}
}

// nextID takes the next number from the counter in row; the first one is first. A number
// that was taken is never given out again, also if its taker crashes.
func (m *Meta) nextID(ctx context.Context, row string, first uint64) (id uint64, err error) {
	err = retry(ctx, func() (bool, error) {
		var step change
		if id, step, err = m.counted(ctx, row, first); err != nil {
			return false, err
		}
		return m.swap(ctx, step)
	})
	return id, err
}

// counted returns the counter's next number and the change that takes it, for a caller
// that takes it together with other changes.
func (m *Meta) counted(ctx context.Context, row string,
	first uint64) (id uint64, step change, err error) {
	old, err := m.get(ctx, row)
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
	value := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, id+1), rand.Uint64())
	return id, change{row: row, old: old, value: value}, nil
}

// records calls visit for each record with the prefix, in the order of rows, page by
// page. It is no snapshot: a record that is written during the walk may be seen or not.
func (m *Meta) records(ctx context.Context, prefix string,
	visit func(row string, value []byte) error) error {
	// The first row after all those with the prefix: its last byte, a slash, plus one.
	end := prefix[:len(prefix)-1] + string(prefix[len(prefix)-1]+1)
	from := prefix
	for {
		span := mvcc.Span{Table: mvcc.MetaTable, Start: from, End: end, HasEnd: true}
		r, err := m.send(ctx, cluster.MetaTablet,
			&pb.TabletRequest{
				Op: &pb.TabletRequest_RawScan{RawScan: &pb.RawScanRequest{Span: wire.SpanPB(span)}},
			})
		if err != nil {
			return fmt.Errorf("meta: list %s: %w", prefix, err)
		}
		cells := r.GetRawScan().GetCells()
		for _, c := range cells {
			if err := visit(wire.String(c.Cell.Row), c.Value); err != nil {
				return err
			}
		}
		if r.GetRawScan().GetDone() || len(cells) == 0 {
			return nil
		}
		// The least row above the last one seen.
		from = wire.String(cells[len(cells)-1].Cell.Row) + "\x00"
	}
}

// decode unmarshals the record of row into a message. An absent record, nil, is the empty
// message.
func decode(row string, value []byte, into proto.Message) error {
	if err := proto.Unmarshal(value, into); err != nil {
		return fmt.Errorf("meta: record %s is damaged: %w", row, err)
	}
	return nil
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

// Report records what a tablet says of itself in the tablet map, unless a higher epoch
// stands there.
func (m *Meta) Report(ctx context.Context, d *pb.TabletDescriptor) error {
	row := tabletRow(d.TabletId)
	return retry(ctx, func() (bool, error) {
		old, err := m.get(ctx, row)
		if err != nil {
			return false, err
		}
		if old != nil {
			have := &pb.TabletDescriptor{}
			if err := decode(row, old, have); err != nil {
				return false, err
			}
			// Reports overtake each other: one that comes late must not take a newer one
			// back.
			if have.Epoch >= d.Epoch {
				return true, nil
			}
		}
		value, err := encode(d)
		if err != nil {
			return false, err
		}
		return m.swap(ctx, change{row: row, old: old, value: value})
	})
}

// Tablets returns the tablet map in the order of rows, which is not that of ranges. While
// a split is being reported it may have a gap or an overlap.
func (m *Meta) Tablets(ctx context.Context) ([]*pb.TabletDescriptor, error) {
	var out []*pb.TabletDescriptor
	err := m.records(ctx, prefixTablet, func(row string, value []byte) error {
		d := &pb.TabletDescriptor{}
		out = append(out, d)
		return decode(row, value, d)
	})
	return out, err
}

// errServer marks every refusal of this package.
var errServer = errors.New("meta: refused")

// refuse returns a *txn.ServerError with the code and the text.
func refuse(code pb.Error_Code, format string, args ...any) error {
	return errors.Join(&txn.ServerError{Code: code, Message: fmt.Sprintf(format, args...)},
		errServer)
}
