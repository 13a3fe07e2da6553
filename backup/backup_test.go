package backup_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/percolatortest"
)

// contents are a table's rows at a timestamp: value and commit timestamp by row and column.
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

// start starts a node with a table of rows, some of them longer than a record holds.
func start(t testing.TB, rows int) *percolatortest.Node {
	n := percolatortest.Start(t, nil, percolatortest.WithTables(percolator.TableSpec{
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

// TestRestoredUnderLoad: what is restored is what a snapshot at the backup's timestamp has
// shown, though others have written all the time.
func TestRestoredUnderLoad(t *testing.T) {
	from := start(t, 100)
	db := from.DB()
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for w := range 4 {
		load.Go(func() {
			for i := w; ctx.Err() == nil; i += 7 {
				// Each moves something between two rows: a backup of no one moment would show it
				// twice or not at all.
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
	// The restored table can be written, and its past is closed.
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

// TestTargetNotEmpty: what is there stays.
func TestTargetNotEmpty(t *testing.T) {
	from := start(t, 10)
	l := open(t, t.TempDir())
	create(t, from.DB(), l, backup.CreateOptions{})
	before := contentsNow(t, from.DB(), "bank")
	_, err := backup.Restore(t.Context(), handle.Client(from.DB()), l, backup.RestoreOptions{})
	if !errors.Is(err, backup.ErrNotEmpty) {
		t.Errorf("NOT-EMPTY: restored over a table: %v", err)
	}
	equal(t, "after a refusal", contentsNow(t, from.DB(), "bank"), before)
	// Under another name, in the same cluster.
	_, err = backup.Restore(t.Context(), handle.Client(from.DB()), l, backup.RestoreOptions{
		Tables: map[string]string{"bank": "copy"},
	})
	must(t, err)
	equal(t, "copy", contentsNow(t, from.DB(), "copy"), before)
	_, err = backup.Restore(t.Context(), handle.Client(from.DB()), l, backup.RestoreOptions{
		Tables: map[string]string{"none": "copy"},
	})
	if !errors.Is(err, backup.ErrTable) {
		t.Errorf("a table that is not in the backup: %v", err)
	}
	// Its records are older than it is: an increment would miss them.
	_, err = backup.Create(t.Context(), handle.Client(from.DB()), l, backup.CreateOptions{Incremental: true})
	if !errors.Is(err, backup.ErrHistoryGone) {
		t.Errorf("UNBOUND: an increment over a restored table: %v", err)
	}
}

// TestUnfinishedRestore: a restore that fails half-way says so to whoever opens the table,
// and the next run ends it.
func TestUnfinishedRestore(t *testing.T) {
	from := start(t, 100)
	l := open(t, t.TempDir())
	m := create(t, from.DB(), l, backup.CreateOptions{})
	want := contentsNow(t, from.DB(), "bank")
	to := percolatortest.Start(t, nil)
	db := to.DB()
	ctx, stop := context.WithCancel(t.Context())
	_, err := backup.Restore(ctx, handle.Client(db), l, backup.RestoreOptions{
		Options: backup.Options{Workers: 1, Progress: func(p backup.Progress) {
			if p.Done == 1 {
				stop()
			}
		}},
	})
	if err == nil {
		t.Fatal("not interrupted")
	}
	s, err := db.Snapshot(t.Context())
	must(t, err)
	_, _, err = s.Get(t.Context(), "row000001", percolator.Column{Table: "bank", Name: "v"})
	if !errors.Is(err, percolator.ErrUnavailable) || !strings.Contains(err.Error(), "being restored") {
		t.Errorf("HALF-RESTORED: a read gives %v", err)
	}
	if _, err := backup.Create(t.Context(), handle.Client(db), l, backup.CreateOptions{}); !errors.Is(err, backup.ErrTable) {
		t.Errorf("backed up half-restored: %v", err)
	}
	to.Restart(t)
	db = to.DB()
	_, err = backup.Restore(t.Context(), handle.Client(db), l, backup.RestoreOptions{At: m.At})
	must(t, err)
	equal(t, "resumed", contentsNow(t, db, "bank"), want)
}

// TestResumedCreate: a backup that was interrupted keeps what is done and its timestamp.
func TestResumedCreate(t *testing.T) {
	from := start(t, 100)
	dir := t.TempDir()
	db, l := from.DB(), open(t, dir)
	ctx, stop := context.WithCancel(t.Context())
	_, err := backup.Create(ctx, handle.Client(db), l, backup.CreateOptions{
		Options: backup.Options{Workers: 1, Progress: func(p backup.Progress) {
			if p.Done == 1 {
				stop()
			}
		}},
	})
	if err == nil {
		t.Fatal("not interrupted")
	}
	listed, err := l.List(t.Context())
	must(t, err)
	if len(listed) != 1 || listed[0].Manifest != nil {
		t.Fatalf("%+v", listed)
	}
	folder := filepath.Join(dir, listed[0].Name)
	killed := filepath.Join(folder, "000001-0badcafe.data.18ea8d00dfc56ad1.tmp") // kill -9 leaves such files
	must(t, os.WriteFile(killed, []byte("half"), 0o600))
	set(t, db, "bank", "row000001", "later")
	set(t, db, "bank", "row000099", "later")
	_, err = backup.Create(t.Context(), handle.Client(db), l, backup.CreateOptions{Tables: []string{"bank"}})
	if err == nil {
		t.Error("another backup was made of what was interrupted")
	}
	resumed := ""
	first := -1
	m := create(t, db, l, backup.CreateOptions{
		Resumed: func(name string) { resumed = name },
		Options: backup.Options{Progress: func(p backup.Progress) {
			if first < 0 {
				first = p.Done
			}
		}},
	})
	if resumed != listed[0].Name || m.Name != resumed || first != 1 {
		t.Errorf("RESUMED: %q of %q, with %d ranges done", resumed, m.Name, first)
	}
	there, err := os.ReadDir(folder)
	must(t, err)
	if len(there) != 1+len(m.Files) {
		t.Errorf("beside the manifest and %d files there are others: %v", len(m.Files), there)
	}
	to := percolatortest.Start(t, nil)
	_, err = backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{})
	must(t, err)
	equal(t, "resumed", contentsNow(t, to.DB(), "bank"), contentsAt(t, db, "bank", percolator.Timestamp(m.At)))
	if holds := holdsOf(t, from); holds != 0 {
		t.Errorf("HELD: %d holds on history after the backup", holds)
	}
}

func holdsOf(t testing.TB, n *percolatortest.Node) uint32 {
	status, err := handle.Client(n.DB()).NodeStatus(t.Context())
	must(t, err)
	return status.GetHistory().GetHolds()
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

// TestRestoredBesideWriter: a client that had the table's id before it was marked can't write
// into it until the restore has ended, and then can.
func TestRestoredBesideWriter(t *testing.T) {
	from := start(t, 100)
	l := open(t, t.TempDir())
	create(t, from.DB(), l, backup.CreateOptions{})
	want := contentsNow(t, from.DB(), "bank")
	to := start(t, 0)
	_ = contentsNow(t, to.DB(), "bank") // it knows the table
	write := func(rows ...string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return to.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			for _, row := range rows {
				tx.Set(row, percolator.Column{Table: "bank", Name: "v"}, []byte("other"))
			}
			return nil
		})
	}
	tried, told := false, false
	_, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{
		Options: backup.Options{Workers: 1, Progress: func(p backup.Progress) {
			if p.Done != 1 || tried {
				return
			}
			tried = true
			for _, rows := range [][]string{{"row000059x"}, {"row000001x", "row000059x"}} {
				err := write(rows...)
				if err == nil {
					t.Errorf("WRITTEN: %q were written into a table that is being restored", rows)
					continue
				}
				told = told || strings.Contains(err.Error(), "being restored")
			}
		}},
	})
	must(t, err)
	if !told && !t.Failed() {
		t.Error("nobody was told that the table is being restored")
	}
	equal(t, "restored beside a writer", contentsNow(t, to.DB(), "bank"), want)
	if must(t, write("row000059x", "row000099x")); !tried {
		t.Error("nobody wrote meanwhile")
	}
}

// TestRestoredBesideReader: a client that had the table's id before it was marked does not see
// it half-restored, by row or by range, and reads it when the restore has ended.
func TestRestoredBesideReader(t *testing.T) {
	from := start(t, 100)
	l := open(t, t.TempDir())
	create(t, from.DB(), l, backup.CreateOptions{})
	want := contentsNow(t, from.DB(), "bank")
	to := start(t, 0)
	_ = contentsNow(t, to.DB(), "bank") // it knows the table
	read := func(what string, fn func(context.Context, *percolator.Snapshot) error) {
		s, err := to.DB().Snapshot(t.Context())
		must(t, err)
		defer func() { _ = s.Close() }()
		// A read is tried until its time is over, on a busy machine perhaps not once.
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			err = fn(ctx, s)
			cancel()
			if err == nil || strings.Contains(err.Error(), "being restored") {
				break
			}
		}
		if !errors.Is(err, percolator.ErrUnavailable) || !strings.Contains(err.Error(), "being restored") {
			t.Errorf("HALF-READ: %s of a table that is being restored gives %v", what, err)
		}
	}
	tried := false
	_, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{
		Options: backup.Options{Workers: 1, Progress: func(p backup.Progress) {
			if p.Done != 1 || tried {
				return
			}
			tried = true
			read("a row", func(ctx context.Context, s *percolator.Snapshot) error {
				_, _, err := s.Get(ctx, "row000001", percolator.Column{Table: "bank", Name: "v"})
				return err
			})
			read("a scan", func(ctx context.Context, s *percolator.Snapshot) error {
				for _, err := range s.Scan(ctx, percolator.Rows("bank")) {
					return err
				}
				return nil
			})
		}},
	})
	must(t, err)
	equal(t, "restored beside a reader", contentsNow(t, to.DB(), "bank"), want)
	if !tried {
		t.Error("nobody read meanwhile")
	}
}

// TestRestoredOverWriter: what somebody wrote just before the table was marked isn't taken
// for how far the restore has come.
func TestRestoredOverWriter(t *testing.T) {
	from := start(t, 100)
	l := open(t, t.TempDir())
	m := create(t, from.DB(), l, backup.CreateOptions{})
	to := start(t, 0)
	set(t, to.DB(), "bank", "row000059x", "other")
	_, err := handle.Client(to.DB()).Admin().RestoreTable(t.Context(), &pb.RestoreTableRequest{
		Name: "bank", SplitKeys: [][]byte{[]byte("row000030")},
		Mark: &pb.RestoreMark{Source: m.Name + " of cluster " + m.Cluster, At: m.At},
	})
	must(t, err)
	r, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{})
	if !errors.Is(err, backup.ErrNotEmpty) {
		t.Errorf("SKIPPED: restored over what somebody wrote: %+v, %v", r, err)
	}
}

// TestRestart: what isn't a backup of this cluster that was interrupted stays.
func TestRestart(t *testing.T) {
	n, other := start(t, 100), start(t, 100)
	dir := t.TempDir()
	l := open(t, dir)
	foreign := []string{
		filepath.Join(dir, "photos", "one"), filepath.Join(dir, "20261122T221500.123Z-full", "notes"),
		filepath.Join(dir, "20261122T221500.123Z-full-old", "plan"),
	}
	for _, name := range foreign {
		must(t, os.MkdirAll(filepath.Dir(name), 0o700))
		must(t, os.WriteFile(name, []byte("mine"), 0o600))
	}
	for _, db := range []*percolator.DB{n.DB(), other.DB()} {
		interruptCreate(t, db, l)
	}
	interrupted, err := filepath.Glob(filepath.Join(dir, "*", "plan"))
	must(t, err)
	for _, plan := range interrupted { // copies, of this cluster's too
		own := filepath.Dir(plan)
		must(t, os.CopyFS(own+"-copy", os.DirFS(own)))
		foreign = append(foreign, filepath.Join(own+"-copy", "plan"))
	}
	create(t, n.DB(), l, backup.CreateOptions{Restart: true})
	resumed := ""
	create(t, other.DB(), l, backup.CreateOptions{Resumed: func(name string) { resumed = name }})
	for _, name := range foreign {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("REMOVED: %v", err)
		}
	}
	if resumed == "" || len(interrupted) != 3 {
		t.Errorf("REMOVED: the other cluster's backup (%v) was not gone on with", interrupted)
	}
	// Of the three folders that are named as backups one is not finished by anybody.
	listed, err := l.List(t.Context())
	must(t, err)
	whole := 0
	for _, b := range listed {
		if b.Manifest != nil {
			whole++
		}
	}
	if len(listed) != 3 || whole != 2 {
		t.Errorf("%d backups listed, %d of them whole: %+v", len(listed), whole, listed)
	}
}

// interruptCreate makes one range of a backup.
func interruptCreate(t *testing.T, db *percolator.DB, l *backup.Location) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	_, err := backup.Create(ctx, handle.Client(db), l, backup.CreateOptions{
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

// TestMadeAnew: a table that was dropped and made anew is never restored in place of the
// older one of its name.
func TestMadeAnew(t *testing.T) {
	from := start(t, 10)
	l := open(t, t.TempDir())
	first := create(t, from.DB(), l, backup.CreateOptions{})
	want := contentsNow(t, from.DB(), "bank")
	later := set(t, from.DB(), "bank", "row000001", "later")
	must(t, handle.Client(from.DB()).DropTable(t.Context(), "bank"))
	must(t, from.DB().CreateTable(t.Context(), percolator.TableSpec{Name: "bank"}))
	set(t, from.DB(), "bank", "new", "1")
	second := create(t, from.DB(), l, backup.CreateOptions{Incremental: true})
	to := percolatortest.Start(t, nil)
	for _, o := range []backup.RestoreOptions{
		{At: first.At, Backup: second.Name}, {At: uint64(later)},
		{At: uint64(later), Tables: map[string]string{"bank": "bank"}},
	} {
		r, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, o)
		if !errors.Is(err, backup.ErrTable) || !strings.Contains(fmt.Sprint(err), first.Name) {
			t.Errorf("ANOTHER: restored %+v, %v", r, err)
		}
	}
	for name, at := range map[string]uint64{"old": first.At, "new": second.At} {
		_, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{
			At: at, Tables: map[string]string{"bank": name},
		})
		must(t, err)
	}
	equal(t, "old", contentsNow(t, to.DB(), "old"), want)
	if got := contentsNow(t, to.DB(), "new"); len(got) != 1 {
		t.Errorf("the new one has %v", got)
	}
}

// TestDroppedTable: a table that was dropped is restored from the backups that have it, and
// left out of the others.
func TestDroppedTable(t *testing.T) {
	from := start(t, 10)
	must(t, from.DB().CreateTable(t.Context(), percolator.TableSpec{Name: "other"}))
	l := open(t, t.TempDir())
	first := create(t, from.DB(), l, backup.CreateOptions{})
	want := contentsNow(t, from.DB(), "bank")
	must(t, handle.Client(from.DB()).DropTable(t.Context(), "bank"))
	last := create(t, from.DB(), l, backup.CreateOptions{Incremental: true})
	to := percolatortest.Start(t, nil)
	for at, hint := range map[uint64]string{first.At: first.Name, last.At: "not in the backup"} {
		r, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{
			At: at, Backup: last.Name, Tables: map[string]string{"bank": "bank"},
		})
		if !errors.Is(err, backup.ErrTable) || !strings.Contains(fmt.Sprint(err), hint) {
			t.Errorf("a table that was dropped before the backup, at %d: %+v, %v", at, r, err)
		}
	}
	r, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{
		At: first.At, Backup: last.Name,
	})
	must(t, err)
	if !slices.Equal(r.Tables, []string{"other"}) || !slices.Equal(r.LeftOut, []string{"bank"}) {
		t.Errorf("restored %v, left out %v", r.Tables, r.LeftOut)
	}
	_, err = backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{
		Backup: first.Name, Tables: map[string]string{"bank": "bank"},
	})
	must(t, err)
	equal(t, "dropped", contentsNow(t, to.DB(), "bank"), want)
}

// TestPlannedBeforeRestore: a backup that was planned while a table was empty holds nothing of
// what is restored into it meanwhile.
func TestPlannedBeforeRestore(t *testing.T) {
	from := start(t, 100)
	l := open(t, t.TempDir())
	create(t, from.DB(), l, backup.CreateOptions{})
	to := start(t, 0)
	ctx, stop := context.WithCancel(t.Context())
	begun := false
	m, err := backup.Create(t.Context(), handle.Client(to.DB()), open(t, t.TempDir()), backup.CreateOptions{
		Options: backup.Options{Workers: 1, Progress: func(p backup.Progress) {
			if p.Done == 0 || begun {
				return
			}
			begun = true
			_, err := backup.Restore(ctx, handle.Client(to.DB()), l, backup.RestoreOptions{
				Options: backup.Options{Workers: 1, Progress: func(p backup.Progress) {
					if p.Done == 2 {
						stop()
					}
				}},
			})
			if err == nil {
				t.Error("not interrupted")
			}
		}},
	})
	if !errors.Is(err, backup.ErrHistoryGone) {
		t.Errorf("HALF: the backup ended with %v: %+v", err, m)
	}
}

// TestRefusedRestore: a restore that is refused has changed nothing.
func TestRefusedRestore(t *testing.T) {
	from, to := start(t, 10), start(t, 10)
	policy := func(n *percolatortest.Node, set *pb.Policy) *pb.Policy {
		p, err := handle.Client(n.DB()).Admin().ClusterPolicy(t.Context(), &pb.ClusterPolicyRequest{Set: set})
		must(t, err)
		return p.GetPolicy()
	}
	policy(from, &pb.Policy{HistoryMs: proto.Uint64(3 * 3600 * 1000)})
	l := open(t, t.TempDir())
	create(t, from.DB(), l, backup.CreateOptions{})
	before := policy(to, nil)
	_, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{Policy: true})
	if !errors.Is(err, backup.ErrNotEmpty) {
		t.Errorf("restored over a table: %v", err)
	}
	if after := policy(to, nil); !proto.Equal(before, after) {
		t.Errorf("a refused restore has changed the policy to %v", after)
	}
}

// TestPolicyRestored: a restore tells the settings that it changes, and does not take back a
// login over HTTP.
func TestPolicyRestored(t *testing.T) {
	from, to := start(t, 10), percolatortest.Start(t, nil)
	policy := func(n *percolatortest.Node, set *pb.Policy) *pb.Policy {
		p, err := handle.Client(n.DB()).Admin().ClusterPolicy(t.Context(), &pb.ClusterPolicyRequest{Set: set})
		must(t, err)
		return p.GetPolicy()
	}
	l := open(t, t.TempDir())
	policy(from, &pb.Policy{HistoryMs: proto.Uint64(20 * 60 * 1000), HttpLogin: proto.Bool(false)})
	create(t, from.DB(), l, backup.CreateOptions{})
	policy(to, &pb.Policy{HistoryMs: proto.Uint64(3 * 3600 * 1000), HttpLogin: proto.Bool(true)})
	o := backup.RestoreOptions{Policy: true}
	told := []backup.Setting{}
	o.Settings = func(s []backup.Setting) { told = s }
	_, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, o)
	must(t, err)
	p := policy(to, nil)
	if !p.GetHttpLogin() {
		t.Errorf("LOWERED: after the restore, http-login is %v", p.GetHttpLogin())
	}
	if p.GetHistoryMs() != 20*60*1000 {
		t.Errorf("restored: %v", p)
	}
	want := []backup.Setting{
		{Name: "history", From: "3h0m0s", To: "20m0s"},
		{Name: "http-login", From: "true", To: "false", Kept: true},
	}
	told = slices.DeleteFunc(told, func(s backup.Setting) bool {
		return s.Name != "history" && s.Name != "http-login"
	})
	if !slices.Equal(told, want) {
		t.Errorf("told %+v, want %+v", told, want)
	}
}

// TestRestoredBefore: tables that an earlier run has ended are left alone, and named.
func TestRestoredBefore(t *testing.T) {
	from := start(t, 10)
	must(t, from.DB().CreateTable(t.Context(), percolator.TableSpec{Name: "later"}))
	l := open(t, t.TempDir())
	create(t, from.DB(), l, backup.CreateOptions{})
	to := percolatortest.Start(t, nil)
	for i, tables := range []map[string]string{{"bank": "bank"}, nil} {
		r, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{Tables: tables})
		must(t, err)
		if len(r.Tables) != i+1 || strings.Join(r.Before, " ") != []string{"", "bank"}[i] {
			t.Errorf("restored %v, before %v", r.Tables, r.Before)
		}
	}
}

// TestDroppedMeanwhile: a backup whose table was dropped can't be finished, and says how to go
// on.
func TestDroppedMeanwhile(t *testing.T) {
	from := start(t, 100)
	l := open(t, t.TempDir())
	interruptCreate(t, from.DB(), l)
	must(t, handle.Client(from.DB()).DropTable(t.Context(), "bank"))
	_, err := backup.Create(t.Context(), handle.Client(from.DB()), l, backup.CreateOptions{})
	if !errors.Is(err, backup.ErrTable) || !strings.Contains(err.Error(), "--restart") {
		t.Errorf("a dropped table: %v", err)
	}
	create(t, from.DB(), l, backup.CreateOptions{Restart: true})
}

// TestJobs: the cluster tells of backups and restores that are under way and that have
// ended, and of a restore that nobody goes on with.
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
