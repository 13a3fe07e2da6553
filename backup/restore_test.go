package backup_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/percolatortest"
)

// TestTargetNotEmpty: a restore into a table with rows is refused, and the rows stay.
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
	// The records of the restored table are older than the table: an increment would miss them.
	_, err = backup.Create(t.Context(), handle.Client(from.DB()), l, backup.CreateOptions{Incremental: true})
	if !errors.Is(err, backup.ErrHistoryGone) {
		t.Errorf("UNBOUND: an increment over a restored table: %v", err)
	}
}

// TestUnfinishedRestore: after a restore that fails halfway, opening the table returns an error
// that says so, and the next run completes it.
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
	if !errors.Is(err, percolator.ErrUnavailable) || !errors.Is(err, txn.ErrRestoring) {
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

// TestRestoredBesideWriter: a client that had the table's id before it was marked cannot write into
// it until the restore has ended, and can then.
func TestRestoredBesideWriter(t *testing.T) {
	from := start(t, 100)
	l := open(t, t.TempDir())
	create(t, from.DB(), l, backup.CreateOptions{})
	want := contentsNow(t, from.DB(), "bank")
	to := start(t, 0)
	_ = contentsNow(t, to.DB(), "bank") // the client caches the table
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
				told = told || errors.Is(err, txn.ErrRestoring)
			}
		}},
	})
	must(t, err)
	if !told && !t.Failed() {
		t.Error("nobody was told that the table is being restored")
	}
	equal(t, "restored beside a writer", contentsNow(t, to.DB(), "bank"), want)
	if must(t, write("row000059x", "row000099x")); !tried {
		t.Error("no client wrote during the restore")
	}
}

// TestRestoredBesideReader: a client that had the table's id before it was marked never reads it
// half restored, by row or by range, and reads it once the restore has ended.
func TestRestoredBesideReader(t *testing.T) {
	from := start(t, 100)
	l := open(t, t.TempDir())
	create(t, from.DB(), l, backup.CreateOptions{})
	want := contentsNow(t, from.DB(), "bank")
	to := start(t, 0)
	_ = contentsNow(t, to.DB(), "bank") // the client caches the table
	read := func(what string, fn func(context.Context, *percolator.Snapshot) error) {
		s, err := to.DB().Snapshot(t.Context())
		must(t, err)
		defer func() { _ = s.Close() }()
		// A read is retried until its deadline, on a busy machine perhaps not once.
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			err = fn(ctx, s)
			cancel()
			if err == nil || errors.Is(err, txn.ErrRestoring) {
				break
			}
		}
		if !errors.Is(err, percolator.ErrUnavailable) || !errors.Is(err, txn.ErrRestoring) {
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
		t.Error("no client read during the restore")
	}
}

// TestRestoredOverWriter: a write just before the table was marked is not mistaken for the
// restore's progress.
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

// TestRefusedRestore: a refused restore has changed nothing.
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

// TestPolicyRestored: a restore reports the settings that it changes, and does not disable a login
// over HTTP.
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
		t.Errorf("reported %+v, want %+v", told, want)
	}
}

// TestRestoredBefore: tables that an earlier run has completed are unchanged and reported.
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

// TestRestoredOverDeletedRows: a table whose rows were deleted can be restored once their history
// is collected; until then the restore reports the obstacle, and continues later.
func TestRestoredOverDeletedRows(t *testing.T) {
	n := startForgetful(t, time.Hour)
	l := open(t, t.TempDir())
	create(t, n.DB(), l, backup.CreateOptions{})
	want := contentsNow(t, n.DB(), "bank")
	_, err := n.DB().DeleteRange(t.Context(), percolator.Rows("bank"))
	must(t, err)
	deadline := time.Now().Add(20 * time.Second)
	for refused := false; ; {
		_, err := backup.Restore(t.Context(), handle.Client(n.DB()), l, backup.RestoreOptions{})
		if err == nil && refused {
			break
		}
		if err == nil || time.Now().After(deadline) || !strings.Contains(err.Error(), "its history is not collected yet") {
			t.Fatalf("restored over deleted rows: %v", err)
		}
		refused = true
		<-time.After(50 * time.Millisecond)
	}
	equal(t, "over deleted rows", contentsNow(t, n.DB(), "bank"), want)
}
