package peers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
	scratch "github.com/percolator-go/percolator/bench/evaluation/postgres"
)

// The time from the start of a write to its arrival at a subscriber, by the feed of changes, etcd's
// watch and PostgreSQL's logical replication (test_decoding), each in turn.

// fedStore is a store with a subscriber. put writes a key whose value begins with stamp; follow
// calls seen with each value that was written, until ctx ends.
type fedStore struct {
	name   string
	put    func(ctx context.Context, key, stamp string) error
	follow func(ctx context.Context, seen func(stamp string)) error
	close  func(ctx context.Context) error
}

// fedLoad is a number of callers, each of which pauses after each write.
type fedLoad struct {
	callers int
	pause   time.Duration
}

func runChanges(ctx context.Context, r *harness.Run) error {
	d := 2 * time.Second
	if r.Smoke {
		d = 300 * time.Millisecond
	}
	for range r.Rounds {
		for _, open := range []func(context.Context, string) (*fedStore, error){fedNode, fedEtcd, fedPostgres} {
			for _, load := range []fedLoad{{1, 5 * time.Millisecond}, {32, 0}} {
				if r.Smoke && load.callers == 1 {
					continue
				}
				err := harness.InDir(r.Dir, func(dir string) error { return measureChanges(ctx, r, open, load, d, dir) })
				if errors.Is(err, scratch.ErrMissing) {
					r.Logf("skipped PostgreSQL: %v", err)
					break
				}
				if err != nil {
					return err
				}
			}
		}
	}
	r.Note("Seen: from the start of a write to its arrival at the subscriber, all in one process.")
	if r.Binary == "" { // a test
		return nil
	}
	for range r.Rounds {
		for _, kind := range []costKind{{"one tablet", 1}, {"two tablets", 2}} {
			if err := harness.InDir(r.Dir, func(dir string) error { return feedCost(ctx, r, kind, dir) }); err != nil {
				return err
			}
		}
	}
	r.Note("Cost: processor time of writers and node for each commit into a table that a process of its own reads with DB.Changes, and "+
		"into another one, %d pairs of short rounds by turns, median; %d callers that pause %v after each commit.", costPairsOf(r), costCallers, costPause)
	return nil
}

// measureChanges opens a store, writes under the load and records what the subscriber sees.
func measureChanges(ctx context.Context, r *harness.Run, open func(context.Context, string) (*fedStore, error), load fedLoad,
	d time.Duration, dir string) error {
	s, err := open(ctx, dir)
	if err != nil {
		return err
	}
	began := time.Now()
	seen := make(chan fedWrite, 1<<20) // more than a measurement writes
	following, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- s.follow(following, func(stamp string) {
			if at, err := time.ParseDuration(stamp); err == nil {
				seen <- fedWrite{at, time.Since(began) - at}
			}
		})
	}()
	lags := harness.NewLatencies()
	rate, err := func() (float64, error) {
		for len(seen) == 0 { // until the subscriber follows
			if err := s.put(ctx, "key probe", "0s"); err != nil {
				return 0, err
			}
			time.Sleep(10 * time.Millisecond)
		}
		start := time.Since(began)
		writes, err := writeFed(ctx, s, load, began, start+d)
		if err != nil {
			return 0, err
		}
		warm := start + d/5
		expected := len(slices.DeleteFunc(slices.Clone(writes), func(at time.Duration) bool { return at <= warm }))
		for int(lags.Count()) < expected {
			select {
			case w := <-seen:
				if w.at > warm {
					lags.Record(w.lag)
				}
			case err := <-done:
				done <- nil
				return 0, err
			case <-time.After(10 * time.Second):
				return 0, fmt.Errorf("%s: the subscriber has seen %d of %d writes", s.name, lags.Count(), expected)
			}
		}
		return float64(len(writes)) / d.Seconds(), nil
	}()
	stop()
	if followErr := <-done; err == nil && followErr != nil && !errors.Is(followErr, context.Canceled) {
		err = followErr
	}
	table := fmt.Sprintf("%d callers", load.callers)
	r.Value(table, s.name, "writes/s", rate)
	r.Value(table, s.name, "seen, ms p50", lags.Millis(0.5))
	r.Value(table, s.name, "seen, ms p99", lags.Millis(0.99))
	return errors.Join(err, s.close(context.WithoutCancel(ctx)))
}

// fedWrite is a write that a subscriber has seen: when it began, and how long after that it was
// seen.
type fedWrite struct{ at, lag time.Duration }

// writeFed writes until d after began and returns when each write began, as a time after began.
func writeFed(ctx context.Context, s *fedStore, load fedLoad, began time.Time, d time.Duration) ([]time.Duration, error) {
	started := make([][]time.Duration, load.callers)
	g, ctx := errgroup.WithContext(ctx)
	for caller := range load.callers {
		g.Go(func() error {
			for i := 0; time.Since(began) < d; i++ {
				start := time.Since(began)
				if err := s.put(ctx, fmt.Sprintf("key %d %d", caller, i%keysPerCaller), start.String()); err != nil {
					return err
				}
				started[caller] = append(started[caller], start)
				time.Sleep(load.pause)
			}
			return nil
		})
	}
	err := g.Wait()
	return slices.Concat(started...), err
}

// stamped returns a value that begins with the stamp, and stampOf the stamp.
func stamped(stamp string) string { return stamp + " " + string(payload) }

func stampOf(value string) string {
	stamp, _, _ := strings.Cut(value, " ")
	return stamp
}

func fedNode(ctx context.Context, dir string) (*fedStore, error) {
	opened, err := openPercolator(ctx, dir)
	if err != nil {
		return nil, err
	}
	db := opened.(*onNode).node.DB() //nolint:forcetypeassert // of this package
	return &fedStore{
		name: "percolator, DB.Changes", close: opened.close,
		put: func(ctx context.Context, key, stamp string) error {
			return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
				tx.Set(key, column, []byte(stamped(stamp)))
				return nil
			})
		},
		follow: func(ctx context.Context, seen func(string)) error {
			for c, err := range db.Changes(ctx, 0, percolator.Rows(column.Table)) {
				if err != nil {
					return err
				}
				if c.Resolved == 0 {
					seen(stampOf(string(c.Value)))
				}
			}
			return nil
		},
	}, nil
}

func fedEtcd(ctx context.Context, dir string) (*fedStore, error) {
	opened, err := openEtcd(ctx, dir, true)
	if err != nil {
		return nil, err
	}
	c := opened.(*inEtcd).client //nolint:forcetypeassert // of this package
	return &fedStore{
		name: "etcd, watch", close: opened.close,
		put: func(ctx context.Context, key, stamp string) error {
			_, err := c.Put(ctx, key, stamped(stamp))
			return err
		},
		follow: func(ctx context.Context, seen func(string)) error {
			for r := range c.Watch(ctx, "key", clientv3.WithPrefix()) {
				for _, e := range r.Events {
					seen(stampOf(string(e.Kv.Value)))
				}
				if err := r.Err(); err != nil {
					return err
				}
			}
			return nil
		},
	}, nil
}

func fedPostgres(ctx context.Context, dir string) (*fedStore, error) {
	s, err := startPostgres(ctx, dir, `CREATE TABLE t (k text PRIMARY KEY, v text NOT NULL)`, "wal_level=logical")
	if err != nil {
		return nil, err
	}
	return &fedStore{
		name: "PostgreSQL, logical replication", close: s.close,
		put: func(ctx context.Context, key, stamp string) error {
			_, err := s.pool.Exec(ctx, `INSERT INTO t VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET v = $2`, key,
				stamped(stamp))
			return err
		},
		follow: func(ctx context.Context, seen func(string)) error { return followPostgres(ctx, dir, seen) },
	}, nil
}

// followPostgres streams a new replication slot.
func followPostgres(ctx context.Context, dir string, seen func(string)) error {
	conn, err := pgconn.Connect(ctx, "host="+dir+" user=bench dbname=postgres replication=database")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "CREATE_REPLICATION_SLOT feed TEMPORARY LOGICAL test_decoding NOEXPORT_SNAPSHOT").ReadAll(); err != nil {
		return err
	}
	conn.Frontend().SendQuery(&pgproto3.Query{String: `START_REPLICATION SLOT feed LOGICAL 0/0 ("skip-empty-xacts" '1')`})
	if err := conn.Frontend().Flush(); err != nil {
		return err
	}
	for {
		m, err := conn.ReceiveMessage(ctx)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *pgproto3.CopyData:
			if err := copied(conn, m.Data, seen); err != nil {
				return err
			}
		case *pgproto3.ErrorResponse:
			return pgconn.ErrorResponseToPgError(m)
		}
	}
}

// copied handles one message of the stream: 'w' has 24 bytes of positions and the text of a
// change, 'k' asks for an answer in its last byte.
func copied(conn *pgconn.PgConn, data []byte, seen func(string)) error {
	switch {
	case len(data) > 25 && data[0] == 'w':
		if _, value, ok := strings.Cut(string(data[25:]), " v[text]:'"); ok {
			seen(stampOf(value))
		}
	case len(data) == 18 && data[0] == 'k' && data[17] == 1:
		answer := make([]byte, 34)
		answer[0] = 'r'
		for at := 1; at <= 17; at += 8 { // written, flushed and applied up to here
			copy(answer[at:], data[1:9])
		}
		binary.BigEndian.PutUint64(answer[25:], uint64(time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).Microseconds()))
		conn.Frontend().Send(&pgproto3.CopyData{Data: answer})
		return conn.Frontend().Flush()
	}
	return nil
}
