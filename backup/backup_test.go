package backup_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/percolatortest"
)

// contents maps row and column to value and commit timestamp at a timestamp.
type contents map[string]string

func contentsAt(t testing.TB, db *percolator.DB, table string, at percolator.Timestamp) contents {
	t.Helper()
	s, err := db.SnapshotAt(t.Context(), at)
	must(t, err)
	return contentsOf(t, s, table)
}

func contentsOf(t testing.TB, s *percolator.Snapshot, table string) contents {
	t.Helper()
	defer func() { _ = s.Close() }()
	out := contents{}
	for c, err := range s.Scan(t.Context(), percolator.Rows(table)) {
		must(t, err)
		out[c.Row+"\x00"+c.Column.Name] = fmt.Sprintf("%d %q", c.CommitTS, c.Value)
	}
	return out
}

func contentsNow(t testing.TB, db *percolator.DB, table string) contents {
	t.Helper()
	s, err := db.Snapshot(t.Context())
	must(t, err)
	return contentsOf(t, s, table)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// set writes one cell; an empty value deletes it.
func set(t testing.TB, db *percolator.DB, table, row, value string) (at percolator.Timestamp) {
	t.Helper()
	must(t, db.Transact(t.Context(), func(_ context.Context, tx *percolator.Tx) error {
		col := percolator.Column{Table: table, Name: "v"}
		if value == "" {
			tx.Delete(row, col)
		} else {
			tx.Set(row, col, []byte(value))
		}
		return nil
	}, percolator.CommittedAt(&at)))
	return at
}

func open(t testing.TB, dir string) *backup.Location {
	t.Helper()
	l, err := backup.OpenNew(t.Context(), dir)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func create(t testing.TB, db *percolator.DB, l *backup.Location,
	o backup.CreateOptions) *backup.Manifest {
	t.Helper()
	m, err := backup.Create(t.Context(), handle.Client(db), l, o)
	must(t, err)
	return m
}

// start starts a node with a table of rows, some of them longer than a record.
func start(t testing.TB, rows int) *percolatortest.Node {
	n := percolatortest.Start(t, nil, percolatortest.Tables(percolator.TableSpec{
		Name: "bank", SplitKeys: []string{"row000030", "row000060"},
	}))
	fill(t, n.DB(), rows)
	return n
}

func fill(t testing.TB, db *percolator.DB, rows int) {
	t.Helper()
	for first := 0; first < rows; first += 50 {
		must(t, db.Transact(t.Context(), func(_ context.Context, tx *percolator.Tx) error {
			for i := first; i < min(first+50, rows); i++ {
				value := fmt.Sprintf("value %d ", i)
				if i%10 == 0 {
					value += strings.Repeat("long", 1000)
				}
				tx.Set(fmt.Sprintf("row%06d", i), percolator.Column{Table: "bank", Name: "v"},
					[]byte(value))
			}
			return nil
		}))
	}
}

func equal(t *testing.T, what string, got, want contents) {
	t.Helper()
	for k, v := range want {
		if got[k] != v {
			t.Fatalf("DIFFERENT: %s: %q is %.60s, want %.60s", what, k, got[k], v)
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok {
			t.Fatalf("DIFFERENT: %s: %q is %.60s, want nothing", what, k, v)
		}
	}
}

// TestRestoredUnderLoad: the restored data equals a snapshot at the backup's timestamp, although
// other clients wrote during the backup.
func TestRestoredUnderLoad(t *testing.T) {
	from := start(t, 100)
	db := from.DB()
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for w := range 4 {
		load.Go(func() {
			for i := w; ctx.Err() == nil; i += 7 {
				// Each moves an amount between two rows: a backup that is not of one timestamp
				// would contain it twice or not at all.
				_ = db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
					a, b := fmt.Sprintf("row%06d", i%100), fmt.Sprintf("row%06d", (i*31+w)%100)
					col := percolator.Column{Table: "bank", Name: "v"}
					v, _, err := tx.Get(ctx, a, col)
					if err == nil && a != b {
						tx.Set(b, col, append(v[:min(len(v), 20)], byte('a'+w)))
						tx.Delete(a, col)
					}
					return err
				})
			}
		})
	}
	l := open(t, t.TempDir())
	m := create(t, db, l, backup.CreateOptions{})
	want := contentsAt(t, db, "bank", percolator.Timestamp(m.At))
	stop()
	load.Wait()

	to := percolatortest.Start(t, nil)
	r, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{Policy: true})
	must(t, err)
	equal(t, "restored", contentsNow(t, to.DB(), "bank"), want)
	if len(want) == 0 || int(r.Records) != len(want) {
		t.Errorf("%d cells, %d records restored", len(want), r.Records)
	}
	v, err := backup.Verify(t.Context(), l, backup.VerifyOptions{})
	must(t, err)
	if len(v.Faults) > 0 || len(v.Backups) != 1 {
		t.Errorf("verify: %+v", v)
	}
	// The restored table can be written, and its earlier history is unreadable.
	set(t, to.DB(), "bank", "row000001", "new")
	s, err := to.DB().SnapshotAt(t.Context(), percolator.Timestamp(m.At))
	must(t, err)
	if _, _, err := s.Get(t.Context(), "row000001", percolator.Column{Table: "bank", Name: "v"}); !errors.Is(err, percolator.ErrSnapshotTooOld) {
		t.Errorf("UNBOUND: a read before the restore ended gives %v", err)
	}
}

// TestChain restores a chain at timestamps of every part of it.
func TestChain(t *testing.T) {
	from := start(t, 100)
	db := from.DB()
	l := open(t, t.TempDir())
	full := create(t, db, l, backup.CreateOptions{})
	type state struct {
		at   percolator.Timestamp
		want contents
	}
	states := []state{{percolator.Timestamp(full.At), contentsAt(t, db, "bank", percolator.Timestamp(full.At))}}
	note := func(at percolator.Timestamp) {
		states = append(states, state{at, contentsAt(t, db, "bank", at)})
	}
	for round := range 3 {
		for i := range 20 {
			row := fmt.Sprintf("row%06d", (i*7+round)%110)
			set(t, db, "bank", row, fmt.Sprintf("round %d %s", round, strings.Repeat("x", 300*i)))
			if i%5 == 0 {
				note(set(t, db, "bank", row, ""))
				set(t, db, "bank", row, "again")
			}
			if i%3 == 0 {
				note(set(t, db, "bank", fmt.Sprintf("row%06d", 50+i), ""))
			}
		}
		if round == 1 { // another tablet, and another table
			must(t, handle.Client(db).SplitTablet(t.Context(), "bank", "row000045"))
			must(t, db.CreateTable(t.Context(), percolator.TableSpec{Name: "later"}))
			set(t, db, "later", "a", "1")
		}
		m := create(t, db, l, backup.CreateOptions{Incremental: true})
		if m.Parent == "" || len(m.Files) == 0 {
			t.Fatalf("no increment: %+v", m)
		}
		note(percolator.Timestamp(m.At))
	}
	to := percolatortest.Start(t, nil)
	for i, s := range states {
		name := fmt.Sprintf("bank%d", i)
		_, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{
			At: uint64(s.at), Tables: map[string]string{"bank": name},
		})
		must(t, err)
		equal(t, fmt.Sprintf("state %d", i), contentsNow(t, to.DB(), name), s.want)
	}
	_, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{})
	must(t, err)
	if got := contentsNow(t, to.DB(), "later"); len(got) != 1 {
		t.Errorf("the later table has %v", got)
	}
	for _, at := range []uint64{full.At - 1, uint64(states[len(states)-1].at) + 1} {
		_, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{
			At: at, Tables: map[string]string{"bank": "never"},
		})
		if !errors.Is(err, backup.ErrNotFound) {
			t.Errorf("restored at %d, outside of the chain: %v", at, err)
		}
	}
}

// TestRecordsPages reads a cell of many long versions, more than a page of them.
func TestRecordsPages(t *testing.T) {
	n := start(t, 1)
	var want []uint64
	since := set(t, n.DB(), "bank", "row", "first")
	for i := range 12 {
		want = append(want, uint64(set(t, n.DB(), "bank", "row", strings.Repeat("x", 300<<10+i))))
	}
	want = append(want, uint64(set(t, n.DB(), "bank", "row", "")))
	slices.Reverse(want)
	now, err := handle.Client(n.DB()).Timestamp(t.Context())
	must(t, err)
	tables, err := handle.Client(n.DB()).Tables(t.Context())
	must(t, err)
	var got []uint64
	for c, err := range handle.Client(n.DB()).Records(t.Context(), txn.RecordScan{
		Span: mvcc.Span{Table: mvcc.TableID(tables[0].Id), Start: "row", End: "row\x00", HasEnd: true}, At: now, Since: mvcc.Timestamp(since),
	}) {
		must(t, err)
		got = append(got, uint64(c.CommitTS))
	}
	if !slices.Equal(got, want) {
		t.Errorf("records at %d, want %d", got, want)
	}
}

// TestJobs: the cluster reports running and finished backups and restores, and an abandoned
// restore.
func TestJobs(t *testing.T) {
	n := start(t, 100)
	status := func() *pb.ClusterStatusResponse {
		s, err := handle.Client(n.DB()).Admin().ClusterStatus(t.Context(), &pb.ClusterStatusRequest{})
		must(t, err)
		return s
	}
	seen := func(kind, state string) func() bool {
		return func() bool {
			return slices.ContainsFunc(status().Jobs, func(j *pb.Job) bool {
				return j.Kind == kind && j.State == state
			})
		}
	}
	during := func(kind string, running *bool) func(backup.Progress) {
		return func(p backup.Progress) {
			if p.Done == 1 && !*running {
				for *running = true; !seen(kind, "running")(); { // until the test's deadline
					must(t, t.Context().Err())
				}
			}
		}
	}
	l, made, restored := open(t, t.TempDir()), false, false
	create(t, n.DB(), l, backup.CreateOptions{Options: backup.Options{
		Workers: 1, By: "ann@home", Progress: during("backup", &made),
	}})
	i := slices.IndexFunc(status().Jobs, func(j *pb.Job) bool { return j.Kind == "backup" })
	if j := status().Jobs[max(i, 0)]; i < 0 || !made || j.State != "done" || j.Done != 3 || j.Total != 3 ||
		j.Records != 100 || j.Bytes == 0 || j.By != "ann@home" || j.NodeId == 0 || j.StartedUnixMs == 0 {
		t.Errorf("the backup's job is %v", j)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	shown := during("restore", &restored)
	_, err := backup.Restore(ctx, handle.Client(n.DB()), l, backup.RestoreOptions{
		Tables: map[string]string{"bank": "copy"},
		Options: backup.Options{Workers: 1, Progress: func(p backup.Progress) {
			if shown(p); p.Done == 1 {
				stop()
			}
		}},
	})
	if err == nil || !restored || !seen("restore", "failed")() || !seen("restore", "unfinished")() {
		t.Errorf("after a restore that ended with %v: %v", err, status().Jobs)
	}
	if !slices.ContainsFunc(status().Findings, func(f *pb.Finding) bool { return f.Kind == "restore-unfinished" }) {
		t.Errorf("nothing is found: %v", status().Findings)
	}
	_, err = backup.Restore(t.Context(), handle.Client(n.DB()), l, backup.RestoreOptions{
		Tables: map[string]string{"bank": "copy"},
	})
	must(t, err)
	if seen("restore", "unfinished")() || !seen("restore", "done")() {
		t.Errorf("after the restore: %v", status().Jobs)
	}
}
