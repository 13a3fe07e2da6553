package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/test/cluster"
)

// Running the commands and killing them, and the nodes that they use.

// rate returns the --rate at which all rows take the duration, at least 64 KiB a second.
func (t *trial) rate() string {
	return fmt.Sprintf("%dKiB", max(64, int64(float64(t.size>>10)/t.duration.Seconds())))
}

// child is a running command.
type child struct {
	cmd         *exec.Cmd
	out, errors bytes.Buffer
	ended       chan struct{}
	err         error // after ended
}

func (t *trial) launch(ctx context.Context, c *cluster.Cluster, args ...string) (*child, error) {
	p := &child{ended: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, t.binary, append(args, "--addr", strings.Join(c.Addrs(), ","))...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errors
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with the process, which ends with this one
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// command runs a command to its end.
func (t *trial) command(ctx context.Context, c *cluster.Cluster, args ...string) (string, error) {
	p, err := t.launch(ctx, c, args...)
	if err != nil {
		return "", err
	}
	<-p.ended
	return t.result(p, args)
}

func (t *trial) result(p *child, args []string) (string, error) {
	if p.err != nil {
		return "", fmt.Errorf("%v: %w\n%s", args, p.err, p.errors.String())
	}
	return p.out.String(), nil
}

// wait reports whether the child has ended within the time.
func (p *child) wait(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.ended:
		return true
	case <-timer.C:
		return false
	}
}

// pause returns a fraction of the command's uninterrupted duration, so that several kills fit.
func (t *trial) pause() time.Duration {
	return t.duration/10 + time.Duration(t.random.Int64N(int64(t.duration/5)))
}

// runUnderFaults runs a command, and kills it and nodes alternately, at most t.strikes times. It
// runs the command again after it has killed it, not after a failure.
func (t *trial) runUnderFaults(ctx context.Context, c *cluster.Cluster, args ...string) (string, error) {
	p, err := t.launch(ctx, c, args...)
	if err != nil {
		return "", err
	}
	for strike := range t.strikes {
		if p.wait(t.pause()) {
			break // it is done, or has failed
		}
		if strike%2 == 0 {
			t.say("%s: kill -9 of the command", args[0])
			_ = p.cmd.Process.Kill()
			<-p.ended
			if p, err = t.launch(ctx, c, args...); err != nil {
				return "", err
			}
			continue
		}
		if err := t.killNode(ctx, c); err != nil {
			return "", err
		}
	}
	<-p.ended
	for line := range strings.Lines(p.errors.String()) {
		t.say("%s: %s", args[0], strings.TrimSpace(line))
	}
	return t.result(p, args)
}

// killNode kills a node and starts it again some seconds later.
func (t *trial) killNode(ctx context.Context, c *cluster.Cluster) error {
	node := c.Node(t.random.IntN(len(c.Nodes())))
	t.say("kill -9 of node %d", node.Index)
	if err := node.Kill(); err != nil {
		return err
	}
	timer := time.NewTimer(time.Second + time.Duration(t.random.Int64N(int64(3*time.Second))))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := node.Start(); err != nil {
		return err
	}
	return c.Ready(ctx)
}

// backUp creates a backup and returns its timestamp.
func (t *trial) backUp(ctx context.Context, c *cluster.Cluster, more ...string) (percolator.Timestamp, error) {
	args := append([]string{"backup", "create", t.location, "--quiet", "--rate", t.rate(), "-o", "json"}, more...)
	out, err := t.runUnderFaults(ctx, c, args...)
	if err != nil {
		return 0, err
	}
	var made struct {
		Name           string
		At             uint64
		Records, Bytes int64
	}
	err = json.Unmarshal([]byte(out), &made)
	t.say("%s: %d records, %d MiB of files", made.Name, made.Records, made.Bytes>>20)
	return percolator.Timestamp(made.At), err
}

// flips is the number of bits that are changed, one at a time.
const flips = 8

// damage flips single bits of the backups; `backup verify` must find each.
func (t *trial) damage(ctx context.Context) error {
	if err := t.verify(ctx); err != nil {
		return err
	}
	var files []string
	err := filepath.WalkDir(t.location, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Sort(files)
	for range flips {
		path := files[t.random.IntN(len(files))]
		whole, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		at, bit := t.random.IntN(len(whole)), byte(1)<<t.random.IntN(8)
		whole[at] ^= bit
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			return err
		}
		if t.verify(ctx) == nil {
			return fmt.Errorf("UNNOTICED: bit %#02x of byte %d of %s was changed, and backup verify succeeds",
				bit, at, path)
		}
		whole[at] ^= bit
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			return err
		}
	}
	t.say("%d changed bits: each was found", flips)
	return nil
}

// verify runs `backup verify`, which fails if a checksum is wrong.
func (t *trial) verify(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, t.binary, "backup", "verify", t.location, "--quiet")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.Join(err, errors.New(string(out)))
	}
	return nil
}
