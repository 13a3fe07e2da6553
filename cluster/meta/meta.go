package meta

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/txn"
)

// Meta reads and changes the cluster's own tables: raw cells of the meta tablet, each a
// protobuf message, changed by conditional writes.
//
// It keeps no copy of them, so any number of goroutines and nodes may use it at once.
// Every method runs on its caller's goroutine and blocks for at least one round trip to
// the leader of meta, wherever that is. What can be in flight is a conditional write
// whose answer was lost; swap finds out what became of it.
type Meta struct {
	records
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
	return &Meta{records: records{send}, router: router, ddl: newDDLLock()}
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

// tabletRow returns the row of a tablet in the tablet map.
func tabletRow(id uint64) string { return prefixTablet + strconv.FormatUint(id, 10) }

// Report records what a tablet says of itself in the tablet map, unless a higher epoch
// stands there.
func (m *Meta) Report(ctx context.Context, d *pb.TabletDescriptor) error {
	_, err := update(ctx, m.records, tabletRow(d.TabletId),
		func(have *pb.TabletDescriptor) (*pb.TabletDescriptor, []change, error) {
			// Reports overtake each other: one that comes late must not take a newer one
			// back.
			if have != nil && have.Epoch >= d.Epoch {
				return have, nil, nil
			}
			return d, nil, nil
		})
	return err
}

// Tablets returns the tablet map in the order of rows, which is not that of ranges. While
// a split is being reported it may have a gap or an overlap.
func (m *Meta) Tablets(ctx context.Context) ([]*pb.TabletDescriptor, error) {
	return list[*pb.TabletDescriptor](ctx, m.records, prefixTablet)
}

// refuse returns a *txn.ServerError with the code and the text.
func refuse(code pb.Error_Code, format string, args ...any) error {
	return &txn.ServerError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// refuseAs returns a refusal that also is why.
func refuseAs(why error, format string, args ...any) error {
	return errors.Join(refuse(pb.Error_CODE_INVALID, format, args...), why)
}
