package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	clientv3 "go.etcd.io/etcd/client/v3"

	percolator "github.com/percolator-go/percolator"
)

// The time from the start of a write to its arrival at a subscriber, by the feed of changes, etcd's
// watch and PostgreSQL's logical replication (test_decoding), each in turn, and the rate of the
// writes with and without the subscriber.

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

func runChanges(ctx context.Context, rounds int, d time.Duration, dir string) error {
	fmt.Println("from the start of a write to the subscriber, in one process, every commit synced")
	for round := range rounds {
		for _, open := range []func(context.Context, string) (*fedStore, error){fedNode, fedEtcd, fedPostgres} {
			for _, load := range []fedLoad{{1, 5 * time.Millisecond}, {32, 0}} {
				for _, followed := range []bool{false, true} {
					line, err := measureChanges(ctx, open, load, followed, d, dir)
					if err != nil {
						return err
					}
					fmt.Printf("round %d  %s\n", round+1, line)
				}
			}
		}
	}
	return nil
}

// measureChanges opens a store, writes under the load and returns a line of figures.
func measureChanges(ctx context.Context, open func(context.Context, string) (*fedStore, error), load fedLoad,
	followed bool, d time.Duration, dir string) (line string, err error) {
	dir, err = os.MkdirTemp(dir, "changes-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := open(ctx, dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	began := time.Now()
	var lags []time.Duration
	following, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		if !followed {
			done <- nil
			return
		}
		done <- s.follow(following, func(stamp string) {
			if at, err := time.ParseDuration(stamp); err == nil && at > d/5 { // it is warm
				lags = append(lags, time.Since(began)-at)
			}
		})
	}()
	commits, err := writeFed(ctx, s, load, began, d)
	if err == nil && followed {
		time.Sleep(200 * time.Millisecond) // for the last ones
	}
	stop()
	if followErr := <-done; err == nil && followErr != nil && following.Err() == nil {
		err = followErr
	}
	slices.Sort(lags)
	slices.Sort(commits)
	line = fmt.Sprintf("%-34s %2d callers %7.0f/s  commit p50 %6s", s.name, load.callers,
		float64(len(commits))/d.Seconds(), at(commits, 0.5))
	if followed {
		line += fmt.Sprintf("  seen p50 %6s p99 %6s (%d)", at(lags, 0.5), at(lags, 0.99), len(lags))
	}
	return line, err
}

func at(sorted []time.Duration, q float64) string {
	if len(sorted) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2fms", float64(sorted[int(q*float64(len(sorted)-1))].Microseconds())/1000)
}

// writeFed writes for d and returns the durations of the writes.
func writeFed(ctx context.Context, s *fedStore, load fedLoad, began time.Time, d time.Duration) ([]time.Duration, error) {
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		all    []time.Duration
		failed atomic.Pointer[error]
	)
	for caller := range load.callers {
		wg.Go(func() {
			var took []time.Duration
			for i := 0; time.Since(began) < d && failed.Load() == nil; i++ {
				start := time.Since(began)
				err := s.put(ctx, fmt.Sprintf("key %d %d", caller, i%keysPerCaller), start.String())
				if err != nil {
					failed.Store(&err)
				}
				took = append(took, time.Since(began)-start)
				time.Sleep(load.pause)
			}
			mu.Lock()
			all = append(all, took...)
			mu.Unlock()
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	return all, nil
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
