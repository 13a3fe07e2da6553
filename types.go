package percolator

import (
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// Timestamp is a timestamp of the oracle (§2.3): 46 bits of milliseconds since the Unix
// epoch, then 18 bits of counter. Every transaction has a start timestamp, every
// committed one a greater commit timestamp; none is given twice. Zero means "none".
type Timestamp uint64

// Time is the physical part, exact to the millisecond. It is the oracle's clock, which
// never goes back.
func (t Timestamp) Time() time.Time { return time.UnixMilli(mvcc.Timestamp(t).Millis()) }

// Column is one column of one table. It is comparable. Name may hold any bytes, up to 1 KiB;
// the empty name is one too.
type Column struct{ Table, Name string }

// CellKey is the address of one cell. It is comparable. Row may hold any bytes, up to 4
// KiB. In JSON, Row and Name are text where they are UTF-8 and {"base64": "…"} otherwise.
type CellKey struct {
	Row    string
	Column Column
}

// Cell is a version of a cell as a reader saw it. CommitTS is when it was written; it is
// zero for a value that the reading transaction itself has buffered.
type Cell struct {
	CellKey
	Value    []byte
	CommitTS Timestamp
}

// TableSpec describes a table for CreateTable, and is what Tables returns.
type TableSpec struct {
	// Name is 1 to 255 bytes of UTF-8.
	Name string
	// SplitKeys are rows at which to split the table into tablets in advance; optional.
	// Each is the first row of a tablet.
	SplitKeys []string
}
