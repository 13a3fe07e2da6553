package node_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/policy"
	"github.com/percolator-go/percolator/node"
)

// adminRig is a node with two observers: index, whose runs fail until healed is set, and wake, of a
// weak column.
type adminRig struct {
	n      *node.Node
	ctx    context.Context
	healed atomic.Bool
	fired  atomic.Int64 // runs of the weak observer
}

var (
	adminText = percolator.Column{Table: "docs", Name: "text"}
	adminWake = percolator.Column{Table: "docs", Name: "wake"}
)

func newAdminRig(t *testing.T) *adminRig {
	t.Helper()
	r := &adminRig{ctx: within(t, 3*time.Minute)}
	r.n = newRig(t, 1, func(_ int, c *node.Config) {
		quick(c)
		c.Observers = func(reg *percolator.Registry) {
			reg.Strong("index", adminText,
				func(context.Context, *percolator.Tx, percolator.Notification) error {
					if r.healed.Load() {
						return nil
					}
					return errors.New("no such page")
				}, percolator.MaxAttempts(1))
			reg.Weak("wake", adminWake,
				func(context.Context, *percolator.Tx, percolator.Notification) error {
					r.fired.Add(1)
					return nil
				})
		}
	}).nodes[0]
	return r
}

// each runs the test with the node's own database and over the network.
func (r *adminRig) each(t *testing.T, test func(t *testing.T, db *percolator.DB)) {
	remote, err := percolator.Dial(r.ctx, []string{r.n.Addr()}, percolator.ClientConfig{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := remote.Close(); err != nil {
			t.Error(err)
		}
	}()
	for name, db := range map[string]*percolator.DB{"in process": r.n.DB(), "Dial": remote} {
		t.Run(name, func(t *testing.T) { test(t, db) })
	}
}

func (r *adminRig) set(t *testing.T, db *percolator.DB, rows ...string) {
	t.Helper()
	if err := db.Transact(r.ctx, func(_ context.Context, tx *percolator.Tx) error {
		for _, row := range rows {
			tx.Set(row, adminText, []byte("x"))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestAdminParked: parked notifications are listed with their errors, and retried by row or all of
// an observer.
func TestAdminParked(t *testing.T) {
	r := newAdminRig(t)
	r.each(t, func(t *testing.T, db *percolator.DB) {
		r.healed.Store(false)
		r.set(t, db, "a", "b", "c")
		if err := db.WaitIdle(r.ctx); err != nil {
			t.Fatal(err)
		}
		a := db.Admin()
		parked := func() (rows string) {
			for p, err := range a.Parked(r.ctx, "index") {
				if err != nil {
					t.Fatal(err)
				}
				if p.Err.Error() != "no such page" || p.Attempts != 1 || p.ParkedTS < p.CommitTS ||
					p.CommitTS == 0 || p.Observer != "index" || p.Column != adminText {
					t.Errorf("parked: %+v", p)
				}
				rows += p.Row
			}
			return rows
		}
		if rows := parked(); rows != "abc" {
			t.Fatalf("parked rows: %q, want abc", rows)
		}
		r.healed.Store(true)
		if n, err := a.RetryParked(r.ctx, "index", "b"); n != 1 || err != nil {
			t.Errorf("retried %d, %v", n, err)
		}
		eventually(t, "row b is run", func() bool { return parked() == "ac" })
		if n, err := a.RetryParked(r.ctx, "index", "b"); n != 0 || !errors.Is(err, percolator.ErrInvalid) {
			t.Errorf("retried %d of a row that is not parked, %v", n, err)
		}
		if n, err := a.RetryParked(r.ctx, "index"); n != 2 || err != nil {
			t.Errorf("retried %d, %v", n, err)
		}
		eventually(t, "all rows are run", func() bool { return parked() == "" })
	})
}

// TestAdminObservers: observers are listed with their counts, paused, limited, resumed, replayed
// and retired.
func TestAdminObservers(t *testing.T) {
	r := newAdminRig(t)
	r.healed.Store(true)
	r.each(t, func(t *testing.T, db *percolator.DB) {
		a := db.Admin()
		if info, err := a.PauseObserver(r.ctx, "index"); err != nil || !info.Paused {
			t.Errorf("paused: %+v, %v", info, err)
		}
		r.set(t, db, "a", "b")
		observers, err := a.Observers(r.ctx)
		if err != nil || len(observers) != 2 {
			t.Fatalf("%d observers, %v", len(observers), err)
		}
		if o := observers[0]; o.Name != "index" || o.Column != adminText || o.Weak || !o.Paused ||
			!o.Pending.Registered || o.Pending.Held != 2 || observers[1].Name != "wake" ||
			!observers[1].Weak || len(o.Runs.Nodes) != 1 {
			t.Errorf("%+v", o)
		}
		if info, err := a.LimitObserver(r.ctx, "index", 3); err != nil || info.Limit != 3 {
			t.Errorf("limited: %+v, %v", info, err)
		}
		if info, err := a.ResumeObserver(r.ctx, "index"); err != nil || info.Paused {
			t.Errorf("resumed: %+v, %v", info, err)
		}
		replay, err := a.ReplayObserver(r.ctx, "index")
		if err != nil || replay.Observer != "index" || replay.StartTS == 0 {
			t.Errorf("replay: %+v, %v", replay, err)
		}
		eventually(t, "the replay is done", func() bool {
			now, err := a.Replay(r.ctx, "index")
			return err == nil && now != nil && now.State == percolator.ReplayDone && now.Rows == 2
		})
		if none, err := a.Replay(r.ctx, "wake"); none != nil || err != nil {
			t.Errorf("a replay that never was: %v, %v", none, err)
		}
		_, limited := a.LimitObserver(r.ctx, "index", -1)
		_, paused := a.PauseObserver(r.ctx, "nobody")
		if !errors.Is(limited, percolator.ErrInvalid) || !errors.Is(paused, percolator.ErrInvalid) {
			t.Errorf("invalid requests: %v; %v", limited, paused)
		}
	})
	if info, err := r.n.DB().Admin().RetireObserver(r.ctx, "wake"); err != nil || !info.Retired {
		t.Errorf("retired: %+v, %v", info, err)
	}
}

// TestAdminTablets: tablets are listed, split and merged, and the policy is read and changed.
func TestAdminTablets(t *testing.T) {
	r := newAdminRig(t)
	r.each(t, func(t *testing.T, db *percolator.DB) {
		a := db.Admin()
		ranges := func() (text string) {
			tablets, err := a.Tablets(r.ctx, "docs")
			if err != nil {
				t.Fatal(err)
			}
			for _, tablet := range tablets {
				if len(tablet.Nodes) != 1 {
					t.Errorf("the tablet is %+v, want one node", tablet)
				}
				text += fmt.Sprintf("%s-%s ", tablet.From, tablet.Before)
			}
			return text
		}
		if err := errors.Join(a.SplitTablet(r.ctx, "docs", "m"), a.SplitTablet(r.ctx, "docs", "s"),
			a.SplitTablet(r.ctx, "docs", "m")); err != nil {
			t.Fatal(err)
		}
		if got := ranges(); got != "-m m-s s- " {
			t.Errorf("tablets %q", got)
		}
		eventually(t, "the node leads all tablets", func() bool {
			tablets, err := a.Tablets(r.ctx, "docs")
			return err == nil && !slices.ContainsFunc(tablets, func(t percolator.Tablet) bool {
				return t.Leader != t.Nodes[0]
			})
		})
		for _, row := range []string{"m", "s"} {
			merged, err := a.MergeTablets(r.ctx, "docs", row)
			if err != nil || merged.ID == 0 || merged.From > row {
				t.Errorf("merged: %+v, %v", merged, err)
			}
		}
		if got := ranges(); got != "- " {
			t.Errorf("tablets after merging %q", got)
		}
		if _, err := a.Tablets(r.ctx, "nothing"); !errors.Is(err, percolator.ErrNoTable) {
			t.Errorf("a table that is not there: %v", err)
		}
		nodes, err := a.Nodes(r.ctx)
		if err != nil || len(nodes) != 1 || !nodes[0].Alive || nodes[0].Addr != r.n.Addr() {
			t.Errorf("nodes: %+v, %v", nodes, err)
		}
		if err := a.MoveReplica(r.ctx, 1, nodes[0].ID, 12345); !errors.Is(err, percolator.ErrInvalid) {
			t.Errorf("moved to a node that is not there: %v", err)
		}
	})
}

// TestPolicyHasAllSettings: percolator.Policy has a field for each setting, besides its version.
func TestPolicyHasAllSettings(t *testing.T) {
	if got, want := reflect.TypeFor[percolator.Policy]().NumField()-1, len(policy.Settings()); got != want {
		t.Errorf("percolator.Policy has %d settings, the cluster's policy %d", got, want)
	}
}

// TestAdminPolicy: SetPolicy changes only the settings that the function has changed.
func TestAdminPolicy(t *testing.T) {
	r := newAdminRig(t)
	r.each(t, func(t *testing.T, db *percolator.DB) {
		a := db.Admin()
		was, err := a.Policy(r.ctx)
		if err != nil || was.Replicas == 0 || was.History <= 0 || was.SplitSize == 0 {
			t.Fatalf("%+v, %v", was, err)
		}
		is, err := a.SetPolicy(r.ctx, func(p *percolator.Policy) {
			p.History, p.NoSplits, p.ClientRate = p.History+time.Hour, !p.NoSplits, p.ClientRate+7
		})
		want := was
		want.Version, want.History, want.NoSplits, want.ClientRate = is.Version, was.History+time.Hour,
			!was.NoSplits, was.ClientRate+7
		if err != nil || is != want || is.Version <= was.Version {
			t.Errorf("%+v, want %+v, %v", is, want, err)
		}
		if again, err := a.Policy(r.ctx); err != nil || again != is {
			t.Errorf("read %+v, want %+v, %v", again, is, err)
		}
		for _, change := range []func(*percolator.Policy){
			func(p *percolator.Policy) { p.Replicas = 2 },
			func(p *percolator.Policy) { p.Replicas = -1 },
			func(p *percolator.Policy) { p.History++ },
		} {
			if _, err := a.SetPolicy(r.ctx, change); !errors.Is(err, percolator.ErrInvalid) {
				t.Errorf("an invalid policy: %v", err)
			}
		}
		if same, err := a.SetPolicy(r.ctx, func(*percolator.Policy) {}); err != nil || same != is {
			t.Errorf("changed nothing: %+v, %v", same, err)
		}
	})
}

// TestAdminTimers: timers are listed by column and cancelled once; a cancelled one never fires.
func TestAdminTimers(t *testing.T) {
	r := newAdminRig(t)
	r.each(t, func(t *testing.T, db *percolator.DB) {
		r.fired.Store(0)
		a := db.Admin()
		if err := db.Transact(r.ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.NotifyAfter("soon", adminWake, 2*time.Second)
			tx.NotifyAfter("late", adminWake, time.Hour)
			tx.NotifyAfter("gone", adminWake, 2*time.Second)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		list := func() (timers []percolator.Timer) {
			for timer, err := range a.Timers(r.ctx, adminWake) {
				if err != nil {
					t.Fatal(err)
				}
				timers = append(timers, timer)
			}
			slices.SortFunc(timers, func(a, b percolator.Timer) int { return strings.Compare(a.Row, b.Row) })
			return timers
		}
		timers := list()
		if len(timers) != 3 || timers[0].Row != "gone" || timers[1].Row != "late" ||
			time.Until(timers[1].Due) < 50*time.Minute || timers[1].Column != adminWake {
			t.Fatalf("timers: %+v", timers)
		}
		for i, want := range []bool{true, false} {
			if done, err := a.CancelTimer(r.ctx, timers[0]); done != want || err != nil {
				t.Errorf("cancelled, time %d: %v, %v", i+1, done, err)
			}
		}
		for timer, err := range a.Timers(r.ctx, adminText) {
			t.Errorf("a timer of another column: %+v, %v", timer, err)
		}
		eventually(t, "the other timer has fired", func() bool { return len(list()) == 1 })
		if err := db.WaitIdle(r.ctx); err != nil {
			t.Fatal(err)
		}
		if n := r.fired.Load(); n != 1 {
			t.Errorf("%d timers have fired, want 1", n)
		}
		if done, err := a.CancelTimer(r.ctx, list()[0]); !done || err != nil {
			t.Errorf("cancelled the late one: %v, %v", done, err)
		}
	})
}
