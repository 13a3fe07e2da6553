package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/test/disk"
)

// stopTimeout bounds the time from SIGTERM to the end of a node.
const stopTimeout = time.Minute

var column = percolator.Column{Table: "device", Name: "c"}

// commit starts a node, commits the transactions from this process and stops the node. Writes of
// the start and of the table's creation do not count.
func commit(ctx context.Context, o options, w workload, d *disk.Disk, binary,
	dir string) (f figure, err error) {
	n, err := startNode(ctx, binary, dir)
	if err != nil {
		return figure{}, err
	}
	defer func() { err = errors.Join(err, n.stop()) }() // a second stop is harmless
	transport, err := rpc.Dial(ctx, []string{n.addr}, rpc.ClientConfig{Insecure: true})
	if err != nil {
		return figure{}, err
	}
	client := txn.NewClient(transport, txn.Config{TwoPhaseOnly: w.twoPhase})
	before, err := load(ctx, client, o, w.size, d, &f)
	if err := errors.Join(err, client.Close(), n.stop()); err != nil {
		return figure{}, err
	}
	end, err := written(d)
	f.written = end - before
	f.cpu, f.resident = used(n.cmd.ProcessState)
	return f, err
}

// load has the client commit the transactions and returns the bytes written before.
func load(ctx context.Context, client *txn.Client, o options, size int, d *disk.Disk,
	f *figure) (before int64, err error) {
	db := handle.NewDB(client)
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: column.Table}); err != nil {
		return 0, err
	}
	if before, err = written(d); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := write(ctx, db, o, size); err != nil {
		return 0, err
	}
	client.Flush() // the second phase of the last ones
	f.transactions, f.took = o.count, time.Since(began)
	after, err := written(d)
	f.loaded = after - before
	return before, err
}

// write commits the transactions, each of one fresh cell with a value that nothing compresses.
func write(ctx context.Context, db *percolator.DB, o options, size int) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range o.callers {
		g.Go(func() error {
			value := make([]byte, size)
			for {
				n := next.Add(1)
				if n > int64(o.count) {
					return nil
				}
				_, _ = rand.Read(value) // it never fails
				err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
					tx.Set(fmt.Sprintf("row/%09d", n), column, value)
					return nil
				})
				if err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// nodeProcess is a node of some build. Its methods belong to one goroutine.
type nodeProcess struct {
	cmd     *exec.Cmd
	log     bytes.Buffer // its standard error; it logs few warnings
	addr    string       // for clients
	stopped bool
}

// startNode starts a node with default settings over the directory and returns when it serves.
func startNode(ctx context.Context, binary, dir string) (*nodeProcess, error) {
	n := &nodeProcess{cmd: exec.CommandContext(ctx, binary, "start", "--dir", dir, "--insecure",
		"--listen", "127.0.0.1:0", "--http=", "--log-level", "warn", "--output", "json")}
	n.cmd.Stderr = &n.log
	n.cmd.Cancel = func() error { return n.cmd.Process.Signal(syscall.SIGTERM) }
	n.cmd.WaitDelay = stopTimeout // then it is killed
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	var ready struct {
		Addr string `json:"addr"`
	}
	// it prints nothing else, and ends the line with its end
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if n.addr = ready.Addr; err != nil {
		return nil, errors.Join(fmt.Errorf("the node did not print its address: %w", err),
			n.stop())
	}
	return n, nil
}

// stop sends SIGTERM to the node and waits for its end.
func (n *nodeProcess) stop() error {
	if n.stopped {
		return nil
	}
	n.stopped = true
	timer := time.AfterFunc(stopTimeout, func() { _ = n.cmd.Process.Kill() })
	defer timer.Stop()
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil &&
		!errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := n.cmd.Wait(); err != nil {
		return fmt.Errorf("the node did not end cleanly: %w: %s", err, n.log.Bytes())
	}
	return nil
}

// used returns the processor time and the peak memory of an ended process.
func used(s *os.ProcessState) (cpu time.Duration, resident int64) {
	if u, ok := s.SysUsage().(*syscall.Rusage); ok {
		resident = u.Maxrss << 10
	}
	return s.UserTime() + s.SystemTime(), resident
}
