package device

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/disk"
)

// stopTimeout bounds the time from SIGTERM to the end of a node.
const stopTimeout = time.Minute

var column = percolator.Column{Table: "device", Name: "c"}

// commit starts a node, commits the transactions from this process and stops the node. What is
// written while the node starts and its table is created does not count.
func commit(ctx context.Context, o options, w workload, d *disk.Disk, binary,
	dir string) (f figure, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return figure{}, err
	}
	c, err := cluster.New(cluster.Config{
		Nodes: 1, Dir: dir, Binary: binary, Args: []string{"--log-level", "warn"},
	})
	if err != nil {
		return figure{}, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.Start(ctx); err != nil {
		return figure{}, err
	}
	transport, err := rpc.Dial(ctx, c.Addrs(), rpc.ClientConfig{Insecure: true})
	if err != nil {
		return figure{}, err
	}
	client := txn.NewClient(transport, txn.Config{TwoPhaseOnly: w.twoPhase})
	before, err := load(ctx, client, o, w.size, d, &f)
	if err := errors.Join(err, client.Close()); err != nil {
		return figure{}, err
	}
	node := c.Node(0)
	if f.cpu, err = node.CPU(); err != nil {
		return figure{}, err
	}
	if f.resident, err = node.Memory("VmHWM"); err != nil {
		return figure{}, err
	}
	if err := node.Terminate(stopTimeout); err != nil {
		return figure{}, err
	}
	end, err := written(d)
	f.written = end - before
	return f, err
}

// load makes the client create the table and commit the transactions. It returns the device's
// counter of bytes written before the first transaction.
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
					tx.Set(row(n), column, value)
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

func row(n int64) string { return fmt.Sprintf("row/%09d", n) }

// used returns the processor time and the peak memory of an ended process.
func used(s *os.ProcessState) (cpu time.Duration, resident int64) {
	if u, ok := s.SysUsage().(*syscall.Rusage); ok {
		resident = u.Maxrss << 10
	}
	return s.UserTime() + s.SystemTime(), resident
}
