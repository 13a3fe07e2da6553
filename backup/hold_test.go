package backup_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/percolatortest"
)

// startForgetful starts a node that keeps a second of history, or up to maxHold of it for holds.
func startForgetful(t testing.TB, maxHold time.Duration) *percolatortest.Node {
	n := percolatortest.Start(t, nil, percolatortest.Tables(percolator.TableSpec{Name: "bank"}),
		percolatortest.Config(func(c *node.Config) {
			c.History, c.Collection.MaxHold = time.Second, maxHold
			c.Collection.Interval, c.Collection.ForceAfter = 20*time.Millisecond, 100*time.Millisecond
		}))
	fill(t, n.DB(), 100)
	return n
}

// collect overwrites rows until the collection of history is blocked with the safepoint at to, or
// the safepoint is above the timestamp above, and returns the safepoint.
func collect(t testing.TB, n *percolatortest.Node, to, above uint64) uint64 {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for i := 0; ; i++ {
		set(t, n.DB(), "bank", fmt.Sprintf("row%06d", i%100), fmt.Sprint("overwritten ", i))
		status, err := handle.Client(n.DB()).NodeStatus(t.Context())
		must(t, err)
		h := status.GetHistory()
		if h.Safepoint == to && h.BlockedBy != "" || h.Safepoint > above {
			return h.Safepoint
		}
		if time.Now().After(deadline) {
			t.Fatalf("history is at %v, wanted: %d, or above %d", h, to, above)
		}
	}
}

func held(t testing.TB, n *percolatortest.Node) (names []string) {
	t.Helper()
	p, err := handle.Client(n.DB()).Admin().ClusterPolicy(t.Context(), &pb.ClusterPolicyRequest{})
	must(t, err)
	for _, h := range p.Holds {
		names = append(names, h.Backup)
		if len(h.Token) > 0 {
			t.Errorf("the token of %s is told", h.Backup)
		}
	}
	return names
}

// TestHeldForIncrement: the history that a backup holds is available to the next increment, after
// restarts and any delay, up to the policy's bound; without a hold the increment is refused.
func TestHeldForIncrement(t *testing.T) {
	for _, hold := range []bool{true, false} {
		t.Run(fmt.Sprint("hold ", hold), func(t *testing.T) {
			t.Parallel()
			n := startForgetful(t, time.Hour)
			l := open(t, t.TempDir())
			full := create(t, n.DB(), l, backup.CreateOptions{Hold: hold})
			at := set(t, n.DB(), "bank", "row000001", "between")
			want := contentsAt(t, n.DB(), "bank", at)
			n.Restart(t)
			if !hold {
				collect(t, n, 0, full.At)
				_, err := backup.Create(t.Context(), handle.Client(n.DB()), l, backup.CreateOptions{Incremental: true})
				if !errors.Is(err, backup.ErrHistoryGone) || len(held(t, n)) > 0 {
					t.Errorf("an increment without history: %v; held: %q", err, held(t, n))
				}
				return
			}
			if got := collect(t, n, full.At, full.At); got != full.At {
				t.Fatalf("UNHELD: history is collected up to %d, and held from %d on", got, full.At)
			}
			first := create(t, n.DB(), l, backup.CreateOptions{Incremental: true})
			if got := held(t, n); !slices.Equal(got, []string{first.Name}) {
				t.Errorf("held after the increment: %q, want %q", got, first.Name)
			}
			if got := collect(t, n, first.At, first.At); got != first.At {
				t.Fatalf("UNHELD: history is collected up to %d, and held from %d on", got, first.At)
			}
			second := create(t, n.DB(), l, backup.CreateOptions{Incremental: true})
			to := percolatortest.Start(t, nil)
			_, err := backup.Restore(t.Context(), handle.Client(to.DB()), l,
				backup.RestoreOptions{Backup: second.Name, At: uint64(at)})
			must(t, err)
			equal(t, "between", contentsNow(t, to.DB(), "bank"), want)

			_, err = handle.Client(n.DB()).Admin().HoldBackup(t.Context(),
				&pb.HoldBackupRequest{Release: []*pb.BackupHold{{Backup: second.Name}}})
			must(t, err)
			collect(t, n, 0, second.At)
			_, err = backup.Create(t.Context(), handle.Client(n.DB()), l, backup.CreateOptions{Incremental: true})
			if !errors.Is(err, backup.ErrHistoryGone) {
				t.Errorf("an increment after the release: %v", err)
			}
		})
	}
}

// TestHoldOfInterrupted: an interrupted backup continues after the history period has passed and
// releases the hold of its predecessor; --restart releases its own.
func TestHoldOfInterrupted(t *testing.T) {
	n := startForgetful(t, time.Hour)
	l := open(t, t.TempDir())
	full := create(t, n.DB(), l, backup.CreateOptions{Hold: true})
	interrupt := func() {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		_, err := backup.Create(ctx, handle.Client(n.DB()), l, backup.CreateOptions{
			Incremental: true, Options: backup.Options{Progress: func(backup.Progress) { stop() }},
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("not interrupted: %v", err)
		}
		if got := held(t, n); len(got) != 2 || got[0] != full.Name {
			t.Fatalf("held by the interrupted one: %q", got)
		}
	}
	set(t, n.DB(), "bank", "row000001", "changed")
	interrupt()
	interrupted := held(t, n)[1]
	n.Restart(t)
	collect(t, n, full.At, full.At)
	m := create(t, n.DB(), l, backup.CreateOptions{Incremental: true})
	if got := held(t, n); m.Name != interrupted || !slices.Equal(got, []string{m.Name}) {
		t.Errorf("%s continued as %s; held: %q", interrupted, m.Name, got)
	}
	full = m
	set(t, n.DB(), "bank", "row000001", "changed again")
	interrupt()
	m = create(t, n.DB(), l, backup.CreateOptions{Incremental: true, Restart: true})
	if got := held(t, n); !slices.Equal(got, []string{m.Name}) {
		t.Errorf("held after a restart: %q, want %q", got, m.Name)
	}
	// A later full backup of the same tables replaces it; one of other tables does not.
	some := create(t, n.DB(), l, backup.CreateOptions{Tables: []string{"bank"}})
	all := create(t, n.DB(), l, backup.CreateOptions{})
	if got := held(t, n); some.Hold != "" || !slices.Equal(got, []string{all.Name}) {
		t.Errorf("held after another full backup: %q, want %q", got, all.Name)
	}
}

// TestHoldEnds: a hold lasts no longer than the policy allows.
func TestHoldEnds(t *testing.T) {
	n := startForgetful(t, 2*time.Second)
	l := open(t, t.TempDir())
	full := create(t, n.DB(), l, backup.CreateOptions{Hold: true})
	collect(t, n, 0, full.At)
	_, err := backup.Create(t.Context(), handle.Client(n.DB()), l, backup.CreateOptions{Incremental: true})
	if !errors.Is(err, backup.ErrHistoryGone) {
		t.Errorf("an increment after collection-max-hold: %v", err)
	}
	if got := held(t, n); !slices.Equal(got, []string{full.Name}) {
		t.Errorf("held: %q; it is there until it is released, so that doctor tells of it", got)
	}
}
