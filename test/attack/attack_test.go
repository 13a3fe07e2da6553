package attack_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/cluster/clustertest"
)

const (
	// patience is the timeout of other clients during an attack.
	patience = 10 * time.Second
	// most is the memory that one attack may add to a node, in bytes.
	most = 512 << 20
	// idle is the time within which a node that exceeded most must shrink below it again.
	idle = 30 * time.Second
	// stated is each node's --memory in bytes, from which the limit of its heap follows. A node
	// must stay below it during halfSent, whose memory only the number of connections bounds
	// (docs/limitations.md).
	stated = 3 << 30
)

var cell = percolator.Column{Table: "t", Name: "c"}

func TestMain(m *testing.M) {
	if dir := os.Getenv(profiles); dir != "" {
		_ = os.Unsetenv(profiles) // a node refuses settings that it does not know
		profile(dir)
	}
	cluster.Main(nil)
	os.Exit(m.Run())
}

// target is the attacked cluster, with a well-behaved client.
type target struct {
	*cluster.Cluster
	db     *percolator.DB
	writes int
}

// TestAttacks: under each attack by a client or a stranger the node stays up, its memory stays
// bounded, and other clients are served.
func TestAttacks(t *testing.T) {
	if os.Getenv("ATTACK") == "" {
		t.Skip("three processes, and tens of thousands of connections and transactions; make attack runs it")
	}
	c := start(t)
	for _, attack := range []struct {
		name string
		run  func(*testing.T, *target)
	}{
		{"a message of 1 GiB", hugeMessage},
		{"a batch of a million entries", hugeBatch},
		{"ten thousand idle connections", idleConnections},
		{"a hundred thousand open transactions", openTransactions},
		{"a client that never reads", neverReads},
		{"many streams that never read", manyNeverRead},
		{"garbage for nodes", garbageForNodes},
	} {
		t.Run(attack.name, func(t *testing.T) {
			before := c.memory(t)
			attack.run(t, c)
			c.served(t)
			c.bounded(t, before)
		})
	}
	// The last one: what it leaves is collected in minutes.
	t.Run("many messages that are half sent", func(t *testing.T) {
		halfSent(t, c)
		c.served(t)
	})
}

func start(t *testing.T) *target {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cfg := cluster.Config{Nodes: 3, Env: []string{fmt.Sprintf("PERCOLATOR_MEMORY=%d", stated)}}
	if folder := os.Getenv("PROFILES"); folder != "" {
		cfg.Env = append(cfg.Env, profiles+"="+folder)
	}
	c := clustertest.Start(ctx, t, cfg)
	db, err := c.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: cell.Table,
		SplitKeys: []string{"h", "p"}}); err != nil {
		t.Fatal(err)
	}
	return &target{Cluster: c, db: db}
}

// served checks that a client is served within patience in every tablet, through the attacked node
// and through another, and that all nodes run.
func (c *target) served(t *testing.T) {
	t.Helper()
	for _, addr := range c.Addrs()[:2] {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		db, err := percolator.Dial(ctx, []string{addr}, c.ClientConfig())
		for _, row := range []string{"a", "m", "z"} {
			if err != nil {
				break
			}
			c.writes++
			text := strconv.Itoa(c.writes)
			err = db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
				tx.Set(row, cell, []byte(text))
				return nil
			})
		}
		if db != nil {
			err = errors.Join(err, db.Close())
		}
		cancel()
		if err != nil {
			t.Errorf("through %s: %v", addr, err)
		}
	}
	for _, p := range c.Nodes() {
		if !p.Running() {
			log, _ := os.ReadFile(fmt.Sprintf("%s.log", strings.TrimSuffix(p.Dir, "/")))
			t.Fatalf("node %d is down:\n%s", p.Index, log[max(0, len(log)-4000):])
		}
	}
}

// memory returns each node's resident set, in bytes.
func (c *target) memory(t *testing.T) (out []int64) {
	t.Helper()
	for _, p := range c.Nodes() {
		resident, err := p.Memory("VmRSS")
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, resident)
	}
	return out
}

// bounded checks that no node has grown by more than most, or that it shrinks again within idle.
func (c *target) bounded(t *testing.T, before []int64) {
	t.Helper()
	began := time.Now()
	deadline := began.Add(idle)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		now, fine := c.memory(t), true
		for i := range now {
			fine = fine && now[i]-before[i] <= most
		}
		if fine {
			t.Logf("resident, MiB: before %v, after %v, in %v", mib(before), mib(now),
				time.Since(began).Round(100*time.Millisecond))
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("memory is not bounded: MiB before %v, after %v", mib(before), mib(now))
			c.profiles(t)
			return
		}
		<-tick.C
	}
}

func mib(bytes []int64) (out []int64) {
	for _, b := range bytes {
		out = append(out, b>>20)
	}
	return out
}

// beside returns the address of a node's port by its offset from the one for clients: 1 is for
// nodes, 2 for gossip.
func beside(t *testing.T, listen string, offset int) string {
	t.Helper()
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort(host, strconv.Itoa(n+offset))
}
