// Package s3_test makes and restores backups in object stores. It is a separate module, so that its
// S3 server is no dependency of the product.
package s3_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"gocloud.dev/blob/memblob"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/backup"
	_ "github.com/percolator-go/percolator/backup/s3"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/percolatortest"
)

var column = percolator.Column{Table: "bank", Name: "v"}

// TestObjectStores makes and restores a chain in each kind of store that is not a directory.
func TestObjectStores(t *testing.T) {
	from := percolatortest.Start(t, nil, percolatortest.Tables(percolator.TableSpec{
		Name: "bank", SplitKeys: []string{"row000030", "row000060"},
	}))
	rows := map[string]string{}
	for i := range 100 {
		rows[fmt.Sprintf("row%06d", i)] = strings.Repeat(fmt.Sprint("value ", i), 1+i%10*100)
	}
	write(t, from.DB(), rows)
	for name, l := range map[string]*backup.Location{
		"memory": backup.NewLocation(memblob.OpenBucket(nil)), "s3": bucket(t),
	} {
		t.Run(name, func(t *testing.T) {
			defer func() { _ = l.Close() }()
			client := handle.Client(from.DB())
			interrupt(t, client, l)
			resumed := ""
			_, err := backup.Create(t.Context(), client, l,
				backup.CreateOptions{Resumed: func(name string) { resumed = name }})
			must(t, err)
			if resumed == "" {
				t.Error("the interrupted backup was not resumed")
			}
			write(t, from.DB(), map[string]string{"row000007": name})
			_, err = backup.Create(t.Context(), client, l, backup.CreateOptions{Incremental: true})
			must(t, err)
			v, err := backup.Verify(t.Context(), l, backup.VerifyOptions{})
			must(t, err)
			if len(v.Backups) != 2 || len(v.Faults)+len(v.Unfinished) > 0 {
				t.Errorf("verify: %+v", v)
			}
			to := percolatortest.Start(t, nil)
			_, err = backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{})
			must(t, err)
			if got, want := contents(t, to.DB()), contents(t, from.DB()); !maps.Equal(got, want) {
				t.Errorf("DIFFERENT: %d cells restored, want %d, or their values differ", len(got), len(want))
			}
		})
	}
}

// interrupt begins a backup and cancels it after its first range.
func interrupt(t *testing.T, client *txn.Client, l *backup.Location) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	_, err := backup.Create(ctx, client, l, backup.CreateOptions{
		Options: backup.Options{Workers: 1, Progress: func(p backup.Progress) {
			if p.Done == 1 {
				stop()
			}
		}},
	})
	if err == nil {
		t.Fatal("not interrupted")
	}
}

// bucket starts an S3 server in memory and opens a bucket of it.
func bucket(t *testing.T) *backup.Location {
	t.Helper()
	server := httptest.NewServer(gofakes3.New(s3mem.New()).Server())
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL+"/backups", http.NoBody)
	must(t, err)
	answer, err := http.DefaultClient.Do(r)
	must(t, err)
	must(t, answer.Body.Close())
	l, err := backup.Open(t.Context(),
		"s3://backups?region=us-east-1&use_path_style=true&endpoint="+server.URL)
	must(t, err)
	return l
}

func write(t *testing.T, db *percolator.DB, rows map[string]string) {
	t.Helper()
	must(t, db.Transact(t.Context(), func(_ context.Context, tx *percolator.Tx) error {
		for row, value := range rows {
			tx.Set(row, column, []byte(value))
		}
		return nil
	}))
}

// contents returns values with commit timestamps by row.
func contents(t *testing.T, db *percolator.DB) map[string]string {
	t.Helper()
	s, err := db.Snapshot(t.Context())
	must(t, err)
	defer func() { _ = s.Close() }()
	out := map[string]string{}
	for c, err := range s.Scan(t.Context(), percolator.Rows(column.Table)) {
		must(t, err)
		out[c.Row] = fmt.Sprintf("%d %q", c.CommitTS, c.Value)
	}
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
