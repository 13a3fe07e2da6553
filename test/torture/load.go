package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/test/workload"
)

// tablets are how many the workloads' table begins with.
const tablets = 6

// counting is the workload of observers; its observer is linked in every node.
var counting = workload.Counting{Rows: 3000, Shards: 4}

// loads are the workloads that run together. Each ends with its own check.
var loads = []struct {
	name    string
	workers int
	run     func(ctx context.Context, db *percolator.DB, l workload.Load) error
}{
	{"bank", 4, workload.Bank},
	{"list append", 6, workload.ListAppend},
	{"lost update", 3, workload.LostUpdate},
	{"long fork", 4, workload.LongFork},
	{"stable snapshots", 2, workload.StableSnapshots},
	{"read your writes", 2, workload.ReadYourWrites},
}

// prepare makes tables and what the workloads begin with.
func prepare(ctx context.Context, db *percolator.DB) error {
	return errors.Join(workload.Prepare(ctx, db, tablets), workload.OpenBank(ctx, db))
}

// loadAll runs all workloads for the duration, each over a client of its own.
func loadAll(ctx context.Context, a *arena) (Counts, error) {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		errs  []error
		total Counts
	)
	for i, l := range loads {
		db, err := a.c.Dial(ctx)
		if err != nil {
			return total, err
		}
		wg.Go(func() {
			err := l.run(ctx, db, workload.Load{Workers: l.workers, Duration: a.o.duration, Seed: a.o.seed + uint64(i)})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", l.name, err))
			}
			total.add(db.Stats())
			errs = append(errs, db.Close())
		})
	}
	wg.Wait()
	return total, errors.Join(errs...)
}

// Counts are the transactions of a run.
type Counts struct{ Done, Conflicts, Unknown uint64 }

func (c *Counts) add(s percolator.Stats) {
	c.Done += s.OnePhase + s.TwoPhase + s.ReadOnly + s.NotifyOnly
	c.Conflicts += s.Conflicts + s.Locked
	c.Unknown += s.Unknown
}

// probe writes a cell again and again, with ten seconds of patience, until ctx ends: gap is the longest time between two
// successes, failed how often the patience was not enough.
func probe(ctx context.Context, db *percolator.DB) (gap time.Duration, failed int) {
	column := percolator.Column{Table: workload.Table, Name: "probe"}
	last := time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		patient, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := db.Transact(patient, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(fmt.Sprintf("%02x/probe", i*37%256), column, []byte("x"))
			return nil
		})
		cancel()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			failed++
		default:
			gap, last = max(gap, time.Since(last)), time.Now()
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return gap, failed
}

// victimEnv carries addresses to a client process that is there to be killed.
const victimEnv = "PERCOLATOR_TORTURE_CLIENT"

// victim moves money until it is killed, if this process is such a client; else it returns.
func victim() {
	addrs, ok := os.LookupEnv(victimEnv)
	if !ok {
		return
	}
	ctx := context.Background()
	certs := os.Getenv(victimEnv + "_CERTS")
	cfg := percolator.ClientConfig{Insecure: certs == ""}
	if certs != "" {
		cfg.CAFile, cfg.CertFile, cfg.KeyFile = certs+"/ca.crt", certs+"/client.crt", certs+"/client.key"
	}
	db, err := percolator.Dial(ctx, strings.Split(addrs, ","), cfg)
	if err == nil {
		err = workload.Bank(ctx, db, workload.Load{Workers: 8, Duration: time.Hour, Seed: uint64(os.Getpid())})
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// killClient starts such a client and kills it in the middle of its commits.
func killClient(ctx context.Context, a *arena) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), victimEnv+"="+strings.Join(a.c.Addrs(), ","), victimEnv+"_CERTS="+a.c.ClientCerts())
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = a.hold(ctx)
	a.log("killed a client")
	err = cmd.Process.Kill()
	_ = cmd.Wait()
	return err
}
