// Command cluster measures operations on three processes of this build and of etcd, in turns, with
// a client in this process that knows the addresses of all three. Every measurement has a fresh
// cluster on loopback, without TLS, in a directory that is removed afterwards; both sync every
// commit.
//
//	cd bench/peers && go run ./cluster -builds ../../bin                 64 callers and one
//	cd bench/peers && go run ./cluster -builds ../../base,../../bin -callers 1
//
// put writes a key without reading it, get reads one (etcd: linearizable), rmw reads a key and
// writes it if it has not changed since.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/turns"
	"github.com/percolator-go/percolator/internal/ports"
	"github.com/percolator-go/percolator/test/cluster"
)

const (
	nodes = 3
	// keys is the number of keys of each caller.
	keys = 1000
	// memberOf names this process's member of a cluster of etcd, in the environment: its number,
	// the first port, and the folder.
	memberOf = "PERCOLATOR_BENCH_ETCD_MEMBER"
)

var (
	column  = percolator.Column{Table: "bench", Name: "c"}
	payload = make([]byte, 100)
)

// operations are those of one client on a running cluster.
type operations struct {
	put, get, rmw func(ctx context.Context, key string) error
}

func main() {
	if member := os.Getenv(memberOf); member != "" {
		if err := serve(member); err != nil {
			fmt.Fprintln(os.Stderr, "cluster: etcd:", err)
			os.Exit(1)
		}
		return
	}
	turns.Main("cluster", run)
}

func run(ctx context.Context) error {
	plan := turns.Plan{Columns: []string{"/s", "ms p50", "ms p99"}, Variants: []string{"etcd"}}
	only := plan.Flags(3)
	builds := flag.String("builds", "../../bin", "comma-separated folders with the binary percolator")
	callers := flag.String("callers", "1,64", "comma-separated numbers of concurrent callers")
	duration := flag.Duration("duration", 5*time.Second, "duration of each measurement")
	flag.Parse()
	folders, names, err := turns.Builds(*builds, "percolator")
	if err != nil {
		return err
	}
	plan.Variants = append(plan.Variants, names...)
	type workload struct {
		name    string
		callers int
	}
	var chosen []workload
	for number := range strings.SplitSeq(*callers, ",") {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 {
			return fmt.Errorf("-callers: %q is no positive number", number)
		}
		for _, name := range []string{"put", "get", "rmw"} {
			if title := fmt.Sprintf("%s, %d", name, n); strings.Contains(title, *only) {
				chosen, plan.Workloads = append(chosen, workload{name, n}), append(plan.Workloads, title)
			}
		}
	}
	plan.Measure = func(ctx context.Context, w, variant int) ([]float64, error) {
		var f turns.Figure
		measure := func(ctx context.Context, o operations) (err error) {
			fn := map[string]func(context.Context, string) error{"put": o.put, "get": o.get, "rmw": o.rmw}
			f, err = turns.Repeat(ctx, chosen[w].callers, turns.Warmup, *duration,
				func(ctx context.Context, caller, i int) error {
					return fn[chosen[w].name](ctx, fmt.Sprintf("row/%03d/%06d", caller, i%keys))
				})
			return err
		}
		with := withEtcd
		if variant > 0 {
			with = func(ctx context.Context, do func(context.Context, operations) error) error {
				return withPercolator(ctx, filepath.Join(folders[variant-1], "percolator"), do)
			}
		}
		err := with(ctx, measure)
		return append([]float64{f.PerSecond}, f.Millis(0.5, 0.99)...), err
	}
	return plan.Run(ctx, os.Stdout)
}

func withPercolator(ctx context.Context, binary string, do func(context.Context, operations) error) error {
	return turns.WithCluster(ctx, cluster.Config{Nodes: nodes, Binary: binary},
		func(c *cluster.Cluster, _ string) (err error) {
			db, err := c.Dial(ctx)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, db.Close()) }()
			if err := db.CreateTable(ctx, percolator.TableSpec{Name: column.Table}); err != nil {
				return err
			}
			if err := replicated(ctx, db); err != nil {
				return err
			}
			set := func(_ context.Context, tx *percolator.Tx, key string) error {
				tx.Set(key, column, payload)
				return nil
			}
			get := func(ctx context.Context, tx *percolator.Tx, key string) error {
				_, _, err := tx.Get(ctx, key, column)
				return err
			}
			transact := func(steps ...func(context.Context, *percolator.Tx, string) error) func(context.Context, string) error {
				return func(ctx context.Context, key string) error {
					return db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
						for _, step := range steps {
							if err := step(ctx, tx, key); err != nil {
								return err
							}
						}
						return nil
					})
				}
			}
			return do(ctx, operations{put: transact(set), get: transact(get), rmw: transact(get, set)})
		})
}

// replicated waits until every tablet has a replica on each node.
func replicated(ctx context.Context, db *percolator.DB) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		tablets, err := db.Admin().Tablets(ctx, column.Table)
		if err != nil {
			return err
		}
		missing := 0
		for _, t := range tablets {
			missing += nodes - len(t.Nodes)
		}
		if missing <= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d replicas are missing: %w", missing, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// withEtcd calls do with a cluster of three processes of etcd with its default configuration.
func withEtcd(ctx context.Context, do func(context.Context, operations) error) (err error) {
	dir, err := os.MkdirTemp("", "bench-etcd-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	port, err := ports.Run(2 * nodes)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var endpoints []string
	for i := range nodes {
		endpoints = append(endpoints, ports.Local(port+2*i+1))
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", memberOf, i, port, dir))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		defer func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}()
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	started, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	if _, err := client.Put(started, "started", ""); err != nil {
		return err
	}
	return do(ctx, operations{
		put: func(ctx context.Context, key string) error {
			_, err := client.Put(ctx, key, string(payload))
			return err
		},
		get: func(ctx context.Context, key string) error {
			_, err := client.Get(ctx, key)
			return err
		},
		rmw: func(ctx context.Context, key string) error { return ifUnchanged(ctx, client, key) },
	})
}

func ifUnchanged(ctx context.Context, client *clientv3.Client, key string) error {
	got, err := client.Get(ctx, key)
	if err != nil {
		return err
	}
	revision := int64(0) // of a key that does not exist
	if len(got.Kvs) > 0 {
		revision = got.Kvs[0].ModRevision
	}
	put, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpPut(key, string(payload))).Commit()
	if err == nil && !put.Succeeded {
		return fmt.Errorf("key %s was changed by another caller", key)
	}
	return err
}

// serve runs a member of a cluster of etcd until SIGTERM.
func serve(member string) error {
	var number, port int
	var dir string
	if _, err := fmt.Sscan(member, &number, &port, &dir); err != nil {
		return err
	}
	at := func(port int) url.URL { return url.URL{Scheme: "http", Host: ports.Local(port)} }
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.LogLevel = fmt.Sprint("n", number), filepath.Join(dir, fmt.Sprint(number)), "fatal"
	peer, client := at(port+2*number), at(port+2*number+1)
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	var all []string
	for i := range nodes {
		u := at(port + 2*i)
		all = append(all, fmt.Sprintf("n%d=%s", i, u.String()))
	}
	cfg.InitialCluster = strings.Join(all, ",")
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer server.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	select {
	case <-stop:
		return nil
	case err := <-server.Err():
		return err
	}
}
