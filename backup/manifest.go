package backup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Metadata of a backup: its manifest, plan and range files, and the checksum that seals each.

// Errors of this package, to be tested with errors.Is.
var (
	// ErrDamaged reports that bytes of a backup differ from those that were written, that one of
	// its data files is missing, or that its format has another version.
	ErrDamaged = errors.New("backup: damaged")
	// ErrNotFound reports that the location does not exist, or that it has no such backup, or none
	// that covers the timestamp.
	ErrNotFound = errors.New("backup: not found")
	// ErrNoDriver reports that the program links no driver for the scheme of a location's URL.
	ErrNoDriver = errors.New("backup: no driver")
	// ErrInterrupted reports that the location has an unfinished backup with other options.
	ErrInterrupted = errors.New("backup: another backup was interrupted")
	// ErrHistoryGone reports that history required by the backup has been collected.
	ErrHistoryGone = errors.New("backup: history that the backup needs has been collected")
	// ErrNotEmpty reports that a table to be restored or loaded is not empty, or is being restored
	// from another source.
	ErrNotEmpty = errors.New("backup: table is not empty")
	// ErrTable reports that a requested table is not in the backup, or can't be copied or
	// restored.
	ErrTable = errors.New("backup: table")
)

// Manifest describes a complete backup.
type Manifest struct {
	Name         string    `json:"name"` // name of the backup's folder
	Cluster      string    `json:"cluster"`
	Since        uint64    `json:"since,omitempty"` // incremental: the parent's At
	At           uint64    `json:"at"`              // timestamp of the backup
	Time         time.Time `json:"time"`            // wall time of that timestamp
	Parent       string    `json:"parent,omitempty"`
	ParentSHA256 string    `json:"parent_sha256,omitempty"` // SHA-256 of the parent's manifest
	Chosen       bool      `json:"chosen,omitempty"`        // only requested tables
	Tables       []Table   `json:"tables"`
	// Observers are the names of the tables' observers, without retired ones. They are not
	// restored: the programs that contain them register them.
	Observers []string `json:"observers,omitempty"`
	// Hold is the token of the hold for the next increment, if there is or was one.
	Hold string `json:"hold,omitempty"`
	// Policy is the cluster's policy as JSON; absent if it had none, or if Chosen.
	Policy json.RawMessage `json:"policy,omitempty"`
	Files  []File          `json:"files"` // in the order of tables and ranges, which cover each table
	// HasPending reports that Pending contains the timers and weak notifications of the tables.
	// Backups of earlier builds, and by certificates other than an operator's, contain none.
	HasPending bool   `json:"has_pending,omitempty"`
	Pending    []File `json:"pending,omitempty"`
	// PendingTruncated reports that more than 262,144 weak notifications were pending when the backup
	// began: further ones that ran before the second list, seconds later, are missing.
	PendingTruncated bool `json:"pending_truncated,omitempty"`

	sha256 string // SHA-256 of the manifest itself
}

// Table is a table of a backup.
type Table struct {
	ID        uint32   `json:"id"` // in the source cluster
	Name      string   `json:"name"`
	SplitKeys [][]byte `json:"split_keys,omitempty"` // requested when the table was created, or later
	// Grants are empty for a table open to all clients, and null in backups of earlier builds.
	Grants []Grant `json:"grants"`
	// Expiry is the table's expiry; nil if its cells do not expire.
	Expiry *Expiry `json:"expiry,omitempty"`
}

// Expiry is the age in milliseconds at which cells of a table expire; 0 means "never".
type Expiry struct {
	After   uint64         `json:"after_ms,omitempty"` // of the columns that are not listed
	Columns []ColumnExpiry `json:"columns,omitempty"`
}

// ColumnExpiry is the expiry of one column.
type ColumnExpiry struct {
	Column []byte `json:"column"`
	After  uint64 `json:"after_ms"`
}

func expiryOf(m *pb.TableExpiry) *Expiry {
	if m == nil {
		return nil
	}
	e := &Expiry{After: m.AfterMs}
	for _, c := range m.Columns {
		e.Columns = append(e.Columns, ColumnExpiry{c.Column, c.AfterMs})
	}
	return e
}

func (e *Expiry) message() *pb.TableExpiry {
	if e == nil {
		return nil
	}
	m := &pb.TableExpiry{AfterMs: e.After}
	for _, c := range e.Columns {
		m.Columns = append(m.Columns, &pb.ColumnExpiry{Column: c.Column, AfterMs: c.After})
	}
	return m
}

// Range is a range of rows of one table, copied by one worker.
type Range struct {
	Table  uint32 `json:"table"`
	Start  []byte `json:"start,omitempty"`
	End    []byte `json:"end,omitempty"`
	HasEnd bool   `json:"has_end,omitempty"` // false: it extends to the end of the table
}

// File is a data file with the records of a range.
type File struct {
	Range
	Name    string `json:"file"`
	Size    int64  `json:"size"`
	SHA256  string `json:"sha256"`
	Records int64  `json:"records"`
	Rows    int64  `json:"rows"`
	Bytes   int64  `json:"bytes"` // of rows, columns and values
}

// Incremental reports whether the backup has a parent.
func (m *Manifest) Incremental() bool { return m.Parent != "" }

// Size returns the total bytes and records of all data files.
func (m *Manifest) Size() (size, records int64) {
	for _, f := range slices.Concat(m.Files, m.Pending) {
		size, records = size+f.Size, records+f.Records
	}
	return size, records
}

// has reports whether the backup contains the table with the id.
func (m *Manifest) has(id uint32) bool {
	return slices.ContainsFunc(m.Tables, func(t Table) bool { return t.ID == id })
}

// path returns the full name of the object that part names within the backup's folder.
func (m *Manifest) path(part string) string { return m.Name + "/" + part }

// plan is the plan of a backup in progress: its manifest without files of ranges, and the ranges.
type plan struct {
	Manifest Manifest `json:"manifest"`
	Ranges   []Range  `json:"ranges"`
	// Listed reports that the files of pending notifications are complete and in the manifest. It is
	// set before the first range is copied; a plan of an earlier build lacks it. Without it, a
	// resumed backup writes these files first, or plans again if no range was copied.
	Listed bool `json:"listed,omitempty"`
}

// span returns the range as an mvcc.Span.
func (r *Range) span() mvcc.Span {
	return mvcc.Span{
		Table: mvcc.TableID(r.Table), Start: string(r.Start), End: string(r.End), HasEnd: r.HasEnd,
	}
}

// overlaps reports whether the ranges, of one table, have common rows.
func (r *Range) overlaps(o *Range) bool {
	return (!o.HasEnd || bytes.Compare(r.Start, o.End) < 0) &&
		(!r.HasEnd || bytes.Compare(o.Start, r.End) < 0)
}

// The kinds of sealed objects.
const (
	kindManifest = "manifest"
	kindPlan     = "plan"
	kindRange    = "range"
)

// sealLine returns the first line of a sealed object of the kind.
func sealLine(kind string, body []byte) string {
	sum := sha256.Sum256(body)
	return "percolator backup " + kind + " 1 sha256 " + hex.EncodeToString(sum[:]) + "\n"
}

// putSealed writes v as JSON behind its checksum, and returns the SHA-256 of the whole object.
func (l *Location) putSealed(ctx context.Context, name, kind string, v any,
	ifAbsent bool) (string, error) {
	body, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return "", coded.Errorf("", "backup: encode %s: %w", name, err)
	}
	data := append([]byte(sealLine(kind, body)), body...)
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), l.write(ctx, name, ifAbsent, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// getSealed reads an object of putSealed into v; found is false if it does not exist.
func (l *Location) getSealed(ctx context.Context, name, kind string,
	v any) (sum string, found bool, err error) {
	data, found, err := l.read(ctx, name)
	if err != nil || !found {
		return "", false, err
	}
	i := bytes.IndexByte(data, '\n') + 1
	if line, want := string(data[:i]), sealLine(kind, data[i:]); line != want {
		prefix, _, _ := strings.Cut(want, " sha256 ")
		if strings.HasPrefix(line, strings.TrimSuffix(prefix, "1")) && !strings.HasPrefix(line, prefix+" ") {
			return "", true, coded.Errorf("", "%w: %s is of another version of the format: %.60q", ErrDamaged,
				name, line)
		}
		return "", true, coded.Errorf("", "%w: %s does not match its checksum", ErrDamaged, name)
	}
	if err := json.Unmarshal(data[i:], v); err != nil {
		return "", true, coded.Errorf("", "%w: decode %s: %w", ErrDamaged, name, err)
	}
	all := sha256.Sum256(data)
	return hex.EncodeToString(all[:]), true, nil
}

// manifest reads the manifest of a backup; nil if it has none, because the backup is unfinished.
func (l *Location) manifest(ctx context.Context, name string) (*Manifest, error) {
	m := &Manifest{}
	sum, found, err := l.getSealed(ctx, name+"/"+kindManifest, kindManifest, m)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, nil
	case m.Name != name:
		return nil, coded.Errorf("", "%w: the manifest of %s belongs to %q", ErrDamaged, name, m.Name)
	}
	m.sha256 = sum
	return m, nil
}

// Listed is an entry of List.
type Listed struct {
	Name     string
	Manifest *Manifest // nil if the backup is unfinished or Err is set
	Err      error     // error of reading the backup's manifest
}

// List returns the location's backups, whole and unfinished, the oldest first.
func (l *Location) List(ctx context.Context) ([]Listed, error) {
	names, err := l.names(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Listed, len(names))
	for i, name := range names {
		out[i].Name = name
		out[i].Manifest, out[i].Err = l.manifest(ctx, name)
		if out[i].Err != nil && !errors.Is(out[i].Err, ErrDamaged) {
			return nil, out[i].Err
		}
	}
	return out, nil
}

// whole returns the manifests of the complete backups, the oldest timestamp first. A damaged one is
// an error: a chain built on the others might omit it.
func (l *Location) whole(ctx context.Context) ([]*Manifest, error) {
	listed, err := l.List(ctx)
	if err != nil {
		return nil, err
	}
	var out []*Manifest
	for _, b := range listed {
		if b.Err != nil {
			return nil, b.Err
		}
		if b.Manifest != nil {
			out = append(out, b.Manifest)
		}
	}
	slices.SortStableFunc(out, func(a, b *Manifest) int { return cmp.Compare(a.At, b.At) })
	return out, nil
}

// chain returns the backup and its ancestors, the full one first.
func (l *Location) chain(ctx context.Context, m *Manifest) ([]*Manifest, error) {
	out := []*Manifest{m}
	for m.Incremental() {
		parent, err := l.manifest(ctx, m.Parent)
		switch {
		case err != nil:
			return nil, err
		case parent == nil:
			return nil, coded.Errorf("", "%w: %s, the parent of %s", ErrNotFound, m.Parent, m.Name)
		case parent.sha256 != m.ParentSHA256 || parent.At != m.Since || parent.At >= m.At:
			return nil, coded.Errorf("", "%w: %s is not the parent of %s", ErrDamaged,
				parent.Name, m.Name)
		}
		m = parent
		out = append(out, m)
	}
	slices.Reverse(out)
	return out, nil
}
