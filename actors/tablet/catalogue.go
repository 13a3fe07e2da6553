package tablet

import (
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// catalogue is the tablet's version of the catalogue of observed columns (design section 7), indexed for evaluation.
// It is immutable: a new version is a new catalogue.
type catalogue struct {
	message *pb.Catalogue
	columns map[columnKey]mvcc.Observed
	names   map[columnKey]string // the observers'
	dropped map[mvcc.TableID]bool
}

type columnKey struct {
	table  mvcc.TableID
	column string
}

func newCatalogue(message *pb.Catalogue) *catalogue {
	c := &catalogue{message: message, columns: map[columnKey]mvcc.Observed{}, names: map[columnKey]string{}, dropped: map[mvcc.TableID]bool{}}
	for _, o := range message.GetObservers() {
		if o.Retired {
			continue
		}
		kind := mvcc.ObservedStrong
		if o.Weak {
			kind = mvcc.ObservedWeak
		}
		key := columnKey{mvcc.TableID(o.Table), wire.String(o.Column)}
		c.columns[key], c.names[key] = kind, o.Name
	}
	for _, id := range message.GetDroppedTables() {
		c.dropped[mvcc.TableID(id)] = true
	}
	return c
}

// isDropped reports whether the table has been dropped, also if nothing is left of it.
func (c *catalogue) isDropped(id mvcc.TableID) bool {
	return c.dropped[id] || slices.ContainsFunc(c.message.GetGone(), func(r *pb.TableRange) bool {
		return r.First <= uint32(id) && uint32(id) <= r.Last
	})
}

func (c *catalogue) version() uint64 { return c.message.GetVersion() }

func (c *catalogue) observed(t mvcc.TableID, column string) mvcc.Observed {
	return c.columns[columnKey{t, column}]
}
