package percolator

import (
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// Timestamp is a timestamp of the oracle (§2.3): 46 bits of milliseconds since the Unix
// epoch, then an 18-bit counter. Every transaction has a start timestamp, and every
// committed one that wrote something a greater commit timestamp; all are unique. Zero means "none".
type Timestamp uint64

// Time returns the physical part, with a resolution of a millisecond. It is the time of the
// oracle, which never goes back.
func (t Timestamp) Time() time.Time { return time.UnixMilli(mvcc.Timestamp(t).Millis()) }

// Column is one column of one table. It is comparable. Name may contain any bytes, up to
// 1 KiB, and may be empty.
type Column struct{ Table, Name string }

// CellKey is the address of one cell. It is comparable. Row may contain any bytes, up to
// 4 KiB, and may be empty. In JSON, Row and Name are strings if they are valid UTF-8, otherwise
// {"base64": "…"}.
type CellKey struct {
	Row    string
	Column Column
}

// Cell is one version of a cell. CommitTS is its commit timestamp; 0 for a write buffered by
// the reading transaction.
type Cell struct {
	CellKey
	Value    []byte
	CommitTS Timestamp
}

// TableSpec describes a table for CreateTable and Tables.
type TableSpec struct {
	// Name is 1 to 255 bytes of UTF-8.
	Name string
	// SplitKeys are the rows at which the table is pre-split; each becomes the first row of
	// a tablet. Optional. Tables also returns the rows at which Admin.SplitTablet has split the
	// table.
	SplitKeys []string
	// Expiry is the age at which cells expire. CreateTable sets it on a new table only. An existing
	// table keeps its expiry; DB.SetExpiry replaces it.
	Expiry Expiry
}

// Expiry is the age at which cells of a table expire. The zero value is "never".
//
// The cluster deletes expired cells in separate transactions, as DB.DeleteColumn does: the
// observers of the column see a deletion, readers see a cell until it is deleted, and an older
// snapshot still sees it. A cell is deleted only if its newest version is that old, so a cell
// rewritten in time stays. It is deleted later than due: by up to a twentieth of the age, or a
// second if that is more, at most an hour, and by the duration of the deletions.
type Expiry struct {
	// After is the age of the columns that Columns does not name: at least one second, or 0 for
	// "never". Ages are rounded up to milliseconds.
	After time.Duration
	// Columns are the ages of single columns; 0 means "never".
	Columns map[string]time.Duration
}
