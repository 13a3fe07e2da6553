package percolator_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
)

var (
	docText = percolator.Column{Table: "docs", Name: "text"}
	docWake = percolator.Column{Table: "docs", Name: "wake"}
)

// registerDocs registers an observer that fails for empty documents, and one for timers.
func registerDocs(r *percolator.Registry) {
	r.Strong("index", docText, func(ctx context.Context, tx *percolator.Tx,
		n percolator.Notification) error {
		text, _, err := tx.Get(ctx, n.Row, n.Column)
		if err == nil && len(text) == 0 {
			return errors.New("the document is empty")
		}
		return err
	}, percolator.MaxAttempts(1))
	r.Weak("remind", docWake, func(context.Context, *percolator.Tx, percolator.Notification) error {
		return nil
	})
}

// withDocs calls fn with the database of a node that has the observers and one parked document.
func withDocs(fn func(ctx context.Context, db *percolator.DB) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := inMemory(ctx, registerDocs)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func(n *node.Node) { _ = n.Close(ctx) }(n)
	db := n.DB()
	err = db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("a", docText, []byte("some words"))
		tx.Set("b", docText, nil)
		return nil
	})
	err = errors.Join(err, db.WaitIdle(ctx))
	for counted := false; err == nil && !counted; { // a run is counted after its commit
		var all []percolator.Observer
		all, err = db.Admin().Observers(ctx)
		counted = len(all) > 0 && all[0].Runs.Failures > 0
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := fn(ctx, db); err != nil {
		fmt.Println(err)
	}
}

// An operator's page: each Observer of the cluster, the RunStats of its runs on all nodes, and its
// pending notifications.
func ExampleAdmin_Observers() {
	withDocs(func(ctx context.Context, db *percolator.DB) error {
		observers, err := db.Admin().Observers(ctx)
		for _, o := range observers {
			fmt.Println(o.Name, o.Column.Name, "weak:", o.Weak, "commits:", o.Runs.Commits, "failures:",
				o.Runs.Failures, "parked:", o.Pending.Parked)
		}
		return err
	})
	// Output:
	// index text weak: false commits: 1 failures: 1 parked: 1
	// remind wake weak: true commits: 0 failures: 0 parked: 0
}

// Changes wait while an observer is paused. The call returns its ObserverInfo.
func ExampleAdmin_PauseObserver() {
	withDocs(func(ctx context.Context, db *percolator.DB) error {
		info, err := db.Admin().PauseObserver(ctx, "index")
		if err != nil {
			return err
		}
		fmt.Println("paused:", info.Paused)
		info, err = db.Admin().ResumeObserver(ctx, "index")
		fmt.Println("paused:", info.Paused)
		return err
	})
	// Output:
	// paused: true
	// paused: false
}

// Parked notifications are repaired and run again.
func ExampleAdmin_Parked() {
	withDocs(func(ctx context.Context, db *percolator.DB) error {
		for p, err := range db.Admin().Parked(ctx, "index") {
			if err != nil {
				return err
			}
			fmt.Println(p.Row, p.Attempts, p.Err)
		}
		n, err := db.Admin().RetryParked(ctx, "index", "b")
		fmt.Println(n, "retried")
		return err
	})
	// Output:
	// b 1 the document is empty
	// 1 retried
}

// After a fix of an observer, it runs again for every row. The ReplayState says when all rows are
// marked.
func ExampleAdmin_ReplayObserver() {
	withDocs(func(ctx context.Context, db *percolator.DB) error {
		replay, err := db.Admin().ReplayObserver(ctx, "index")
		for err == nil && replay.State == percolator.ReplayRunning { // a program would pause here
			var now *percolator.Replay
			if now, err = db.Admin().Replay(ctx, "index"); now != nil {
				replay = *now
			}
		}
		fmt.Println(replay.State, replay.Rows, "rows")
		return err
	})
	// Output: done 2 rows
}

// After a deploy that has raised the observer's Version, a ReplayOption restricts the replay to
// rows last processed by an older one; ObserverVersion lists the running versions.
func ExampleBelowVersion() {
	withDocs(func(ctx context.Context, db *percolator.DB) error {
		observers, err := db.Admin().Observers(ctx)
		if err != nil {
			return err
		}
		for _, v := range observers[0].Runs.Versions {
			fmt.Println("version", v.Version, "on", len(v.Nodes), "node")
		}
		_, err = db.Admin().ReplayObserver(ctx, "index", percolator.BelowVersion(2))
		fmt.Println("refused:", errors.Is(err, percolator.ErrInvalid))
		return nil
	})
	// Output:
	// version 0 on 1 node
	// refused: true
}

// A table is split where a new customer's load is expected; each Tablet then has a part of it.
func ExampleAdmin_Tablets() {
	withDocs(func(ctx context.Context, db *percolator.DB) error {
		if err := db.Admin().SplitTablet(ctx, "docs", "m"); err != nil {
			return err
		}
		tablets, err := db.Admin().Tablets(ctx, "docs")
		for _, t := range tablets {
			fmt.Printf("from %q before %q on %d node\n", t.From, t.Before, len(t.Nodes))
		}
		return err
	})
	// Output:
	// from "" before "m" on 1 node
	// from "m" before "" on 1 node
}

// Each ClusterNode says whether it is alive.
func ExampleAdmin_Nodes() {
	withDocs(func(ctx context.Context, db *percolator.DB) error {
		nodes, err := db.Admin().Nodes(ctx)
		for _, n := range nodes {
			fmt.Println("alive:", n.Alive, "leads meta:", n.LeadsMeta)
		}
		return err
	})
	// Output: alive: true leads meta: true
}

// Old versions stay readable for an hour.
func ExampleAdmin_SetPolicy() {
	withDocs(func(ctx context.Context, db *percolator.DB) error {
		policy, err := db.Admin().SetPolicy(ctx, func(p *percolator.Policy) { p.History = time.Hour })
		fmt.Println(policy.History)
		return err
	})
	// Output: 1h0m0s
}

// A reminder is cancelled.
func ExampleAdmin_CancelTimer() {
	withDocs(func(ctx context.Context, db *percolator.DB) error {
		err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.NotifyAfter("a", docWake, 24*time.Hour)
			return nil
		})
		if err != nil {
			return err
		}
		var timer percolator.Timer
		for timer, err = range db.Admin().Timers(ctx, docWake) {
			if err != nil {
				return err
			}
			fmt.Println(timer.Row, time.Until(timer.Due) > 23*time.Hour)
		}
		cancelled, err := db.Admin().CancelTimer(ctx, timer)
		fmt.Println("cancelled:", cancelled)
		return err
	})
	// Output:
	// a true
	// cancelled: true
}

// A health check of an application: Pending counts pending notifications, its ObserverPending
// values count them by observer.
func ExampleDB_Pending() {
	withDocs(func(ctx context.Context, db *percolator.DB) error {
		pending, err := db.Pending(ctx)
		fmt.Println("runnable:", pending.Runnable, "held:", pending.Held, "parked:", pending.Parked)
		for _, o := range pending.Observers {
			if o.Parked > 0 {
				fmt.Println(o.Name, "needs attention")
			}
		}
		return err
	})
	// Output:
	// runnable: 0 held: 0 parked: 1
	// index needs attention
}

// A test of a program's own registration: an ObserverSpec contains the values of the options.
func ExampleRegistry() {
	r := percolator.NewRegistry()
	r.Table(percolator.TableSpec{Name: "docs", SplitKeys: []string{"m"}})
	registerDocs(r)
	for _, o := range r.Observers() {
		fmt.Println(o.Name, o.Column, o.MaxAttempts)
	}
	fmt.Println(r.Err())
	// Output:
	// index {docs text} 1
	// remind {docs wake} 10
	// <nil>
}

// A function that depends only on the change can be tested without a node.
func ExampleObserverFunc() {
	var skipDrafts percolator.ObserverFunc = func(_ context.Context, _ *percolator.Tx,
		n percolator.Notification) error {
		if n.Attempt > 2 {
			return errors.New("still failing")
		}
		return nil
	}
	fmt.Println(skipDrafts(context.Background(), nil, percolator.Notification{Row: "a", Attempt: 3}))
	// Output: still failing
}

// Options shared by several observers.
func ExampleObserverOption() {
	patient := []percolator.ObserverOption{
		percolator.Deadline(time.Minute), percolator.MaxAttempts(50), percolator.Concurrency(4),
	}
	r := percolator.NewRegistry()
	r.Strong("index", docText, index, patient...)
	fmt.Println(r.Observers()[0].Deadline, r.Observers()[0].Concurrency)
	// Output: 1m0s 4
}
