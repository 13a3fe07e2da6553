package backup_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/handle"
)

// TestExpiryRestored: a restored table has the expiry of the backup unless the options omit it; an
// existing table keeps its own.
func TestExpiryRestored(t *testing.T) {
	n := start(t, 10)
	db := n.DB()
	expiry := percolator.Expiry{
		After: 1000 * time.Hour, Columns: map[string]time.Duration{"\xff": 2000 * time.Hour, "kept": 0},
	}
	must(t, db.SetExpiry(t.Context(), "bank", expiry))
	l := open(t, t.TempDir())
	create(t, db, l, backup.CreateOptions{})
	must(t, db.CreateTable(t.Context(), percolator.TableSpec{Name: "own"}))
	for _, test := range []struct {
		to       string
		noExpiry bool
		want     percolator.Expiry
	}{{"copy", false, expiry}, {"bare", true, percolator.Expiry{}}, {"own", false, percolator.Expiry{}}} {
		r, err := backup.Restore(t.Context(), handle.Client(db), l, backup.RestoreOptions{
			Tables: map[string]string{"bank": test.to}, NoExpiry: test.noExpiry,
		})
		must(t, err)
		if len(r.Expiring) == 1 == test.noExpiry {
			t.Errorf("restored %+v", r)
		}
		tables, err := db.Tables(t.Context())
		must(t, err)
		i := slices.IndexFunc(tables, func(s percolator.TableSpec) bool { return s.Name == test.to })
		if i < 0 || !reflect.DeepEqual(tables[i].Expiry, test.want) {
			t.Errorf("table %s of %+v: want the expiry %+v", test.to, tables, test.want)
		}
	}
}
