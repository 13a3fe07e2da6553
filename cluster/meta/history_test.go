package meta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// TestHoldHistory: a holder has one lease, which ends by oracle time or when it is released; the
// number of leases is bounded.
func TestHoldHistory(t *testing.T) {
	_, m := newWorld(t)
	ctx, now := t.Context(), mvcc.TimestampAt(1_000_000)
	hold := func(holder string, oldest mvcc.Timestamp, ttl time.Duration) (*pb.HoldHistoryResponse,
		error) {
		return m.History.HoldHistory(ctx, now, &pb.HoldHistoryRequest{
			Holder: holder, Oldest: uint64(oldest), TtlMs: uint32(ttl.Milliseconds()),
		})
	}
	held := func() (names string) {
		_, l, err := m.History.Collection(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range l.Leases {
			names += fmt.Sprintf("%s@%d ", l.Holder, mvcc.Timestamp(l.Oldest).Millis())
		}
		return names
	}
	at := mvcc.TimestampAt
	for _, step := range []struct {
		holder string
		oldest mvcc.Timestamp
		want   string
	}{
		{"a", at(500), "a@500 "}, {"b", at(700), "a@500 b@700 "}, {"a", at(600), "b@700 a@600 "},
		{"b", 0, "a@600 "},
		{"c", at(1 << 40), "a@600 c@1000000 "}, // not above the present time
	} {
		if _, err := hold(step.holder, step.oldest, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if got := held(); got != step.want {
			t.Fatalf("after %s at %d: %q, want %q", step.holder, step.oldest.Millis(), got,
				step.want)
		}
	}
	if r, err := hold("d", at(900), time.Hour); err != nil ||
		r.TtlMs != uint32(maxLeaseTTL.Milliseconds()) {
		t.Errorf("an hour was granted: %v, %v", r, err)
	}
	now = at(1_000_000 + 10_000)
	if _, err := hold("e", at(950), time.Second); err != nil {
		t.Fatal(err)
	}
	if got := held(); got != "d@900 e@950 " {
		t.Errorf("after the others' end: %q", got)
	}
	for _, holder := range []string{"", strings.Repeat("x", maxHolder+1)} {
		if _, err := hold(holder, at(1), time.Second); err == nil {
			t.Errorf("a holder of %d bytes", len(holder))
		}
	}
	for i := range maxLeases - 2 {
		if _, err := hold(fmt.Sprint(i), at(1), time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := hold("one too many", at(1), time.Second); err == nil {
		t.Errorf("more than %d leases", maxLeases)
	}
}

// TestBoundAndLeaseInOneStep: a lease and a bound above it are ordered. Either the bound is refused
// because the leases have changed, or the lease's answer contains the bound.
func TestBoundAndLeaseInOneStep(t *testing.T) {
	_, m := newWorld(t)
	ctx, now := t.Context(), mvcc.TimestampAt(1_000_000)
	rec, seen, err := m.History.Collection(ctx)
	if err != nil {
		t.Fatal(err)
	}
	request := &pb.HoldHistoryRequest{Holder: "a", Oldest: 5, TtlMs: 10_000}
	if r, err := m.History.HoldHistory(ctx, now, request); err != nil || r.Bound != 0 {
		t.Fatal(r, err)
	}
	if ok, err := m.History.SaveCollection(ctx, rec, &wire.Collection{Target: 10}, seen); ok || err != nil {
		t.Fatalf("a bound was chosen without looking at the lease: %v", err)
	}
	if _, seen, err = m.History.Collection(ctx); err != nil {
		t.Fatal(err)
	}
	if ok, err := m.History.SaveCollection(ctx, rec, &wire.Collection{Target: 10}, seen); !ok ||
		err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := m.History.SaveCollection(ctx, rec, &wire.Collection{Target: 11}, nil); ok || err != nil {
		t.Errorf("an old version was replaced: %v", err)
	}
	if r, err := m.History.HoldHistory(ctx, now, request); err != nil || r.Bound != 10 {
		t.Errorf("the lease's answer is %v, %v; want the bound 10", r, err)
	}
}

// TestDropsInterrupted: whichever operation fails, a drop is dated only after every tablet knows of
// it, and a forgotten table is still refused by id.
func TestDropsInterrupted(t *testing.T) {
	for _, after := range []bool{false, true} {
		died := true
		for failAt := 1; died; failAt++ {
			w, m := newWorld(t)
			ctx := t.Context()
			var ids []uint32
			for _, name := range []string{"a", "b", "c"} {
				table, err := m.Schema.CreateTable(ctx, name, nil)
				if err != nil {
					t.Fatal(err)
				}
				if ids = append(ids, table.Id); name != "c" {
					if err := dropTable(ctx, m, name); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.ops, w.failAt, w.after = 0, failAt, after
			first := tendDrops(ctx, w, m)
			died = first != nil
			w.failAt = 0
			if err := tendDrops(ctx, w, m); err != nil {
				t.Fatal(err)
			}
			c, err := m.Observers.Catalogue(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if len(c.DroppedTables) != 0 || len(c.Gone) != 1 || c.Gone[0].First != ids[0] ||
				c.Gone[0].Last != ids[1] {
				t.Errorf("crash at %d (after: %v): %v", failAt, after, c)
			}
			if v, err := m.Schema.get(ctx, droppedRow(ids[0])); v != nil || err != nil {
				t.Errorf("crash at %d: the table's record is still there: %v", failAt, err)
			}
		}
	}
}

func tendDrops(ctx context.Context, w *world, m *Meta) error {
	err := m.Schema.DateDrops(ctx, func(context.Context) (mvcc.Timestamp, error) {
		c, err := m.Observers.Catalogue(ctx)
		for id := range w.held {
			if id != cluster.MetaTablet && err == nil && w.has[id] < c.Version {
				w.t.Errorf("a drop is dated, and tablet %d does not know of it", id)
			}
		}
		return mvcc.TimestampAt(77), err
	})
	if err != nil {
		return err
	}
	if err := m.Observers.Sync(ctx); err != nil {
		return err
	}
	return m.Schema.ForgetDrops(ctx, func(_ mvcc.TableID, at mvcc.Timestamp) bool {
		if at != mvcc.TimestampAt(77) {
			w.t.Errorf("dropped at %d", at)
		}
		return true
	})
}

func TestAddToRanges(t *testing.T) {
	var ranges []*pb.TableRange
	for _, step := range []struct {
		id   uint32
		want string
	}{{20, "20-20"}, {16, "16-16 20-20"}, {18, "16-16 18-18 20-20"}, {17, "16-18 20-20"},
		{19, "16-20"}, {16, "16-20"}, {21, "16-21"}, {30, "16-21 30-30"}} {
		ranges = addToRanges(ranges, step.id)
		var got []string
		for _, r := range ranges {
			got = append(got, fmt.Sprintf("%d-%d", r.First, r.Last))
		}
		if strings.Join(got, " ") != step.want {
			t.Errorf("with %d: %v, want %s", step.id, got, step.want)
		}
	}
}

// TestLeasesAreShared: one host's processes cannot take all leases, whatever names they use; others
// still get theirs.
func TestLeasesAreShared(t *testing.T) {
	_, m := newWorld(t)
	ctx, now := t.Context(), mvcc.TimestampAt(1_000_000)
	hold := func(holder string) error {
		_, err := m.History.HoldHistory(ctx, now,
			&pb.HoldHistoryRequest{Holder: holder, Oldest: 5, TtlMs: 60_000})
		return err
	}
	greedy := func(i int) string {
		return wire.WithOrigin(fmt.Sprintf("%d from 10.0.0.%d", i, i), "192.0.2.1")
	}
	for i := range maxLeasesEach {
		if err := hold(greedy(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := hold(greedy(maxLeasesEach)); err == nil {
		t.Errorf("UNSHARED-LEASES: one host has more than %d", maxLeasesEach)
	}
	if err := hold(greedy(0)); err != nil {
		t.Errorf("it can't renew: %v", err)
	}
	for _, holder := range []string{wire.WithOrigin("a", "192.0.2.2"), "node 1, start 2"} {
		if err := hold(holder); err != nil {
			t.Errorf("%s: %v", holder, err)
		}
	}
}

// TestLeaseIsItsHolders: a caller with a holder's name but not its token neither ends its lease nor
// moves it, nor finds the token in meta's record, which every client can read. Clients without
// tokens work as before.
func TestLeaseIsItsHolders(t *testing.T) {
	_, m := newWorld(t)
	ctx, now := t.Context(), mvcc.TimestampAt(1_000_000)
	hold := func(token string, oldest uint64) error {
		_, err := m.History.HoldHistory(ctx, now, &pb.HoldHistoryRequest{
			Holder: "a", Token: []byte(token), Oldest: oldest, TtlMs: 60_000,
		})
		return err
	}
	held := func() (all []uint64) {
		_, l, err := m.History.Collection(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range l.Leases {
			all = append(all, l.Oldest)
		}
		return all
	}
	if err := hold("secret", 5); err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"", "guess"} {
		var refused *txn.ServerError
		if err := hold(token, 0); !errors.As(err, &refused) ||
			refused.Code != pb.Error_CODE_PERMISSION {
			t.Errorf("ANY-TOKEN: released with the token %q: %v", token, err)
		}
		if err := hold(token, 7); err != nil {
			t.Error(err)
		}
		if got := held(); len(got) == 0 || got[0] != 5 {
			t.Errorf("ANY-TOKEN: after another's with the token %q: %v", token, got)
		}
		if err := hold(token, 0); err != nil {
			t.Error(err)
		}
	}
	value, err := m.History.get(ctx, rowLeases)
	if err != nil || bytes.Contains(value, []byte("secret")) {
		t.Errorf("the record has the token: %q, %v", value, err)
	}
	if err := hold("secret", 6); err != nil || !slices.Equal(held(), []uint64{6}) {
		t.Errorf("renewed: %v, %v", held(), err)
	}
	if err := hold("secret", 0); err != nil || len(held()) > 0 {
		t.Errorf("released: %v, %v", held(), err)
	}
	if err := hold(strings.Repeat("x", maxToken+1), 5); err == nil {
		t.Error("a token of any length")
	}
}

// backupHolds requests holds of history for backups.
type backupHolds struct {
	*testing.T
	meta *Meta
	now  mvcc.Timestamp
}

func newBackupHolds(t *testing.T) *backupHolds {
	_, m := newWorld(t)
	return &backupHolds{t, m, mvcc.TimestampAt(1_000_000)}
}

func backupHold(name, token string) *pb.BackupHold {
	return &pb.BackupHold{Backup: name, At: 5, Token: []byte(token)}
}

// ask requests a hold and releases others.
func (b *backupHolds) ask(hold *pb.BackupHold,
	release ...*pb.BackupHold) (*pb.HoldBackupResponse, error) {
	return b.meta.History.HoldBackup(b.Context(), b.now,
		&pb.HoldBackupRequest{Hold: hold, Release: release})
}

// must is ask that must succeed.
func (b *backupHolds) must(hold *pb.BackupHold, release ...*pb.BackupHold) {
	b.Helper()
	if _, err := b.ask(hold, release...); err != nil {
		b.Fatal(err)
	}
}

// held returns the holders of history, each followed by a space.
func (b *backupHolds) held() (names string) {
	b.Helper()
	_, l, err := b.meta.History.Collection(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for _, l := range l.Leases {
		if l.Expires > uint64(b.now) {
			names += l.Holder + " "
		}
	}
	return names
}

// want checks the holders of history.
func (b *backupHolds) want(names string) {
	b.Helper()
	if got := b.held(); got != names {
		b.Errorf("UNHELD: held are %q, want %q", got, names)
	}
}

// TestHoldForBackups: history held for a backup stays held, whatever other leases end, until a
// caller with its token or an operator ends it.
func TestHoldForBackups(t *testing.T) {
	b := newBackupHolds(t)
	for range 2 { // the first answer was lost
		b.must(backupHold("full", "secret"))
	}
	b.want("full ")
	b.now = mvcc.TimestampAt(1_000_000 + time.Hour.Milliseconds())
	reader := &pb.HoldHistoryRequest{Holder: "full", Oldest: 6, TtlMs: 1000}
	if _, err := b.meta.History.HoldHistory(t.Context(), b.now, reader); err != nil {
		t.Fatal(err)
	}
	b.want("full full ")
	reader.Oldest = 0
	if _, err := b.meta.History.HoldHistory(t.Context(), b.now, reader); err != nil {
		t.Fatal(err)
	}
	b.want("full ")
	for _, bad := range []*pb.BackupHold{
		backupHold("full", "guess"), backupHold("", "secret"), backupHold("x", ""),
		backupHold(strings.Repeat("x", maxHolder+1), "secret"),
		backupHold("x", strings.Repeat("x", maxToken+1)),
	} {
		if _, err := b.ask(bad); err == nil {
			t.Errorf("held: %.80v", bad)
		}
	}
	b.must(backupHold("next", "other"), backupHold("full", "guess"))
	b.want("full next ")
	b.must(nil, backupHold("full", "secret"), backupHold("gone", "secret"))
	b.want("next ")
	if _, err := b.ask(nil, backupHold("full", "")); err == nil ||
		!strings.Contains(err.Error(), "cluster show") {
		t.Errorf("an operator ends what is not there: %v", err)
	}
	b.must(nil, backupHold("next", ""))
	b.want("")
}

// TestHoldsHaveBounds: collected history cannot be held, and the number of holds is bounded.
func TestHoldsHaveBounds(t *testing.T) {
	b := newBackupHolds(t)
	b.must(backupHold("full", "secret"))
	b.must(nil, backupHold("full", "secret"))
	history := b.meta.History
	rec, seen, err := history.Collection(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ok, err := history.SaveCollection(t.Context(), rec, &wire.Collection{Target: 6}, seen)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	r, err := b.ask(backupHold("late", "secret"))
	if err != nil || r.Bound != 6 || b.held() != "" {
		t.Errorf("what is gone was held: %v, %v", r, err)
	}
	for i := range maxBackupHolds + 1 {
		hold := backupHold(fmt.Sprint(i), "secret")
		hold.At = 7
		if _, err = b.ask(hold); (err != nil) != (i == maxBackupHolds) {
			t.Fatalf("hold %d: %v", i, err)
		}
	}
	if !strings.Contains(err.Error(), "backup release") {
		t.Error(err)
	}
}

// TestHoldsAreSharedOut: one certificate's name cannot use up the holds for backups, and its share
// does not depend on others; a released hold can be taken again.
func TestHoldsAreSharedOut(t *testing.T) {
	_, m := newWorld(t)
	now := mvcc.TimestampAt(1_000_000)
	ask := func(by, name string, release ...*pb.BackupHold) error {
		_, err := m.History.HoldBackup(t.Context(), now, &pb.HoldBackupRequest{Release: release,
			Hold: &pb.BackupHold{Backup: by + name, By: by, At: 5, Token: []byte("secret")}})
		return err
	}
	for _, by := range []string{"ann", "bob"} {
		for i := range maxBackupHoldsEach {
			if err := ask(by, fmt.Sprint(i)); err != nil {
				t.Fatalf("hold %d of %s: %v", i, by, err)
			}
		}
		err := ask(by, "more")
		if err == nil || !strings.Contains(err.Error(), by) {
			t.Errorf("HOLDS-SHARED: hold %d of %s: %v", maxBackupHoldsEach, by, err)
		}
		if err := ask(by, "0"); err != nil {
			t.Errorf("the same hold again: %v", err)
		}
		released := &pb.BackupHold{Backup: by + "0", Token: []byte("secret")}
		if err := ask(by, "more", released); err != nil {
			t.Errorf("after a release: %v", err)
		}
	}
}
