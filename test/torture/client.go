package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/test/workload"
)

// victimEnv carries addresses to a client process that is there to be killed, victimCerts
// its folder of certificates.
const (
	victimEnv   = "PERCOLATOR_TORTURE_CLIENT"
	victimCerts = "PERCOLATOR_TORTURE_CERTS"
)

// victim moves money until it is killed, if this process is such a client; else it returns.
func victim() {
	addrs, ok := os.LookupEnv(victimEnv)
	if !ok {
		return
	}
	ctx, dir := context.Background(), os.Getenv(victimCerts)
	cfg := percolator.ClientConfig{Insecure: dir == ""}
	if dir != "" {
		cfg.CAFile = filepath.Join(dir, certs.CACert)
		cfg.CertFile, cfg.KeyFile = filepath.Join(dir, certs.ClientCert),
			filepath.Join(dir, certs.ClientKey)
	}
	db, err := percolator.Dial(ctx, strings.Split(addrs, ","), cfg)
	if err == nil {
		err = workload.Transfers(ctx, db,
			workload.Load{Workers: 8, Duration: time.Hour, Seed: uint64(os.Getpid())})
	}
	fmt.Fprintln(os.Stderr, "the client that was to be killed has ended:", err)
	os.Exit(1)
}

// killClient starts such a client, and kills it in the middle of its commits.
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
	cmd.Env = append(os.Environ(), victimEnv+"="+strings.Join(a.c.Addrs(), ","), victimCerts+"="+
		a.c.ClientCerts())
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
