package backup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/percolatortest"
)

// loadRows returns parts with the rows row000000 to row000299, and calls each before it yields a row.
func loadRows(each func(row string) error) (parts []backup.LoadPart) {
	for part := range 3 {
		parts = append(parts, backup.LoadPart{
			Start: loadRow(100 * part),
			Rows: func(_ context.Context, fn func(string, []backup.LoadCell) error) error {
				for i := range 100 {
					row := loadRow(100*part + i)
					if each != nil {
						if err := each(row); err != nil {
							return err
						}
					}
					// Several requests for each part.
					err := fn(row, []backup.LoadCell{
						{Column: "name", Value: []byte(row)},
						{Column: "v", Value: []byte(strings.Repeat("x", 20<<10))},
					})
					if err != nil {
						return err
					}
				}
				return nil
			},
		})
	}
	return parts
}

func loadRow(i int) string { return fmt.Sprintf("row%06d", i) }

// TestLoadIsWhole: an interrupted load shows nothing, another load of the same rows completes it, a
// third one finds it complete, and a load of others is refused.
func TestLoadIsWhole(t *testing.T) {
	n := start(t, 0)
	client := handle.Client(n.DB())
	o := backup.LoadOptions{Table: "bank", Source: "file rows"}
	cut := errors.New("cut short")
	o.Parts = loadRows(func(row string) error {
		if row == loadRow(250) {
			return cut
		}
		return nil
	})
	if _, err := backup.Load(t.Context(), client, o); !errors.Is(err, cut) {
		t.Fatalf("not cut short: %v", err)
	}
	s, err := n.DB().Snapshot(t.Context())
	must(t, err)
	// The node's own client has looked the table up before the load, so it repeats the read.
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, _, err = s.Get(ctx, loadRow(1), percolator.Column{Table: "bank", Name: "name"})
	if !errors.Is(err, txn.ErrRestoring) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("HALF-LOADED: a read gives %v", err)
	}
	o.Source, o.Parts = "file other", loadRows(nil)
	if _, err := backup.Load(t.Context(), client, o); !errors.Is(err, backup.ErrNotEmpty) || !strings.Contains(err.Error(), "from file rows") {
		t.Errorf("MIXED: other rows were loaded into it: %v", err)
	}
	n.Restart(t)
	client = handle.Client(n.DB())
	var most int64
	o.Source, o.Progress = "file rows", func(p backup.Progress) { most = max(most, p.Bytes) }
	r, err := backup.Load(t.Context(), client, o)
	must(t, err)
	if most > 250*(20<<10) {
		t.Errorf("the second run has written %d bytes again", most)
	}
	got := contentsNow(t, n.DB(), "bank")
	if len(got) != 600 || got[loadRow(299)+"\x00name"] != fmt.Sprintf("%d %q", r.At, loadRow(299)) {
		t.Errorf("GAPS: loaded %d of 600 cells: %.80s", len(got), got[loadRow(299)+"\x00name"])
	}
	again, err := backup.Load(t.Context(), client, o)
	if err != nil || !again.Before || again.At != r.At {
		t.Errorf("a third run: %+v, %v", again, err)
	}
	o.Source = "file other"
	if _, err := backup.Load(t.Context(), client, o); !errors.Is(err, backup.ErrNotEmpty) {
		t.Errorf("NOT-EMPTY: loaded over rows: %v", err)
	}
	o.Table = "none"
	if _, err := backup.Load(t.Context(), client, o); !errors.Is(err, backup.ErrTable) {
		t.Errorf("loaded into a missing table: %v", err)
	}
	// The loaded table is an ordinary one now.
	set(t, n.DB(), "bank", loadRow(1), "new")
}

// TestLoadRefusesDisorder: a row that is not above the one before it, or not below the next part, is
// an error: a resumed run skips all rows up to the last one that it finds.
func TestLoadRefusesDisorder(t *testing.T) {
	n := start(t, 0)
	for name, rows := range map[string][]string{
		"twice": {"a", "b", "b"}, "back": {"a", "c", "b"}, "beyond": {"a", "m"}, "before": {"m", "z", "k"},
	} {
		must(t, n.DB().CreateTable(t.Context(), percolator.TableSpec{Name: name}))
		yielding := func(rows []string) func(context.Context, func(string, []backup.LoadCell) error) error {
			return func(_ context.Context, fn func(string, []backup.LoadCell) error) error {
				for _, row := range rows {
					if err := fn(row, []backup.LoadCell{{Column: "v", Value: []byte(row)}}); err != nil {
						return err
					}
				}
				return nil
			}
		}
		parts := []backup.LoadPart{{Rows: yielding(rows)}, {Start: "m", Rows: yielding(nil)}}
		if rows[0] == "m" {
			parts[0].Rows, parts[1].Rows = yielding(nil), yielding(rows)
		}
		_, err := backup.Load(t.Context(), handle.Client(n.DB()), backup.LoadOptions{Table: name, Source: name, Parts: parts})
		if !errors.Is(err, backup.ErrNotSorted) {
			t.Errorf("UNSORTED: %s: %v", name, err)
		}
	}
	_, err := backup.Load(t.Context(), handle.Client(n.DB()), backup.LoadOptions{
		Table: "bank", Source: "parts", Parts: []backup.LoadPart{{Start: "b"}, {Start: "b"}},
	})
	if !errors.Is(err, backup.ErrNotSorted) {
		t.Errorf("UNSORTED: parts with the same start: %v", err)
	}
}

// TestLoadNotifies: observers run once for each row if the load has Notify set, and for none
// otherwise.
func TestLoadNotifies(t *testing.T) {
	var runs atomic.Int64
	n := percolatortest.Start(t, func(r *percolator.Registry) {
		for _, table := range []string{"loud", "quiet"} {
			r.Strong("watch "+table, percolator.Column{Table: table, Name: "name"},
				func(_ context.Context, _ *percolator.Tx, n percolator.Notification) error {
					if runs.Add(1); n.Column.Table == "quiet" {
						t.Error("NOTIFIED: an observer ran for a loaded row")
					}
					return nil
				})
		}
	})
	for table, want := range map[string]int64{"quiet": 0, "loud": 300} {
		r, err := backup.Load(t.Context(), handle.Client(n.DB()), backup.LoadOptions{
			Table: table, Source: "rows", Parts: loadRows(nil), Notify: want > 0,
		})
		must(t, err)
		if r.Notified != want {
			t.Errorf("%s: notified %d, want %d", table, r.Notified, want)
		}
	}
	must(t, n.DB().WaitIdle(t.Context()))
	if runs.Load() != 300 {
		t.Errorf("%d runs for 300 rows", runs.Load())
	}
}
