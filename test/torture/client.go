package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/test/workload"
)

// victimEnv holds the configuration of a client process that will be killed, as JSON.
const victimEnv = "PERCOLATOR_TORTURE_CLIENT"

// order is where a client that will be killed connects, and how.
type order struct {
	Addrs []string
	Certs string // folder; empty: none
	TTL   time.Duration
}

// victim transfers money until it is killed, if killClient has started this process; otherwise it
// returns.
func victim() {
	text, ok := os.LookupEnv(victimEnv)
	if !ok {
		return
	}
	var o order
	err := json.Unmarshal([]byte(text), &o)
	ctx, cfg := context.Background(), percolator.ClientConfig{Insecure: o.Certs == "", LockTTL: o.TTL}
	if o.Certs != "" {
		cfg.CAFile = filepath.Join(o.Certs, certs.CACert)
		cfg.CertFile, cfg.KeyFile = filepath.Join(o.Certs, certs.ClientCert),
			filepath.Join(o.Certs, certs.ClientKey)
	}
	var db *percolator.DB
	if err == nil {
		db, err = percolator.Dial(ctx, o.Addrs, cfg)
	}
	if err == nil {
		err = workload.Transfers(ctx, db,
			workload.Load{Workers: 8, Duration: time.Hour, Seed: uint64(os.Getpid())})
	}
	fmt.Fprintln(os.Stderr, "the client that was to be killed has ended:", err)
	os.Exit(1)
}

// killClient starts a client process that transfers money, and kills it during its commits.
func killClient(ctx context.Context, a *arena) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(a.dir, fmt.Sprintf("client-%d.log", a.strikes)))
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(self)
	text, err := json.Marshal(order{
		Addrs: a.c.Addrs(), Certs: a.c.ClientCerts(), TTL: a.c.ClientConfig().LockTTL,
	})
	if err != nil {
		return err
	}
	cmd.Env = append(os.Environ(), victimEnv+"="+string(text))
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = a.wait(ctx, time.Second+a.random(2*time.Second))
	err = cmd.Process.Kill()
	_ = cmd.Wait()
	if state := cmd.ProcessState; state.Exited() {
		return fmt.Errorf("the client ended by itself: %v; see %s", state, out.Name())
	}
	a.log("killed a client")
	return err
}
