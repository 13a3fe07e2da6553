package node_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
)

// BenchmarkStart opens a node on directories with increasing numbers of rows (ROWS, smallest first)
// and compares with the smallest. The start must hardly depend on them: with ten times the data it
// may take at most twice the time. `make bench-start` runs it.
func BenchmarkStart(b *testing.B) {
	var smallest time.Duration
	for _, rows := range startRows(b) {
		dir := b.TempDir()
		fillRows(b, dir, rows)
		// once before the measurement: it compacts the loaded data and warms the page cache
		closeStarted(b, open(b, dir, nil))
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			var took []time.Duration
			var cpu time.Duration
			for b.Loop() {
				used, begin := startCPU(b), time.Now()
				n := open(b, dir, nil)
				took, cpu = append(took, time.Since(begin)), cpu+startCPU(b)-used
				b.StopTimer()
				closeStarted(b, n)
				b.StartTimer()
			}
			slices.Sort(took)
			median := took[len(took)/2]
			if smallest == 0 {
				smallest = median
			}
			b.ReportMetric(milliseconds(median), "median-ms")
			b.ReportMetric(milliseconds(took[0]), "best-ms")
			b.ReportMetric(milliseconds(cpu)/float64(len(took)), "cpu-ms/op")
			b.ReportMetric(float64(median)/float64(smallest), "of-smallest")
		})
	}
}

func startRows(b *testing.B) (rows []int) {
	b.Helper()
	for field := range strings.FieldsSeq(cmp.Or(os.Getenv("ROWS"), "20000 200000")) {
		n, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		rows = append(rows, n)
	}
	return rows
}

func closeStarted(b *testing.B, n *node.Node) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		b.Fatal(err)
	}
}

// startCPU returns the process's user and system time.
func startCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// fillRows loads rows of about 500 bytes.
func fillRows(b *testing.B, dir string, rows int) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	n := open(b, dir, func(c *node.Config) { c.Splits.Off = true })
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: past.Table}); err != nil {
		b.Fatal(err)
	}
	const perTxn = 500
	value := make([]byte, 500)
	l := n.DB().Loader(percolator.LoaderConfig{Workers: 4})
	for from := 0; from < rows; from += perTxn {
		err := l.Load(ctx, func(_ context.Context, tx *percolator.Tx) error {
			for i := from; i < from+perTxn; i++ {
				tx.Set(fmt.Sprintf("%08d", i), past, value)
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	if err := n.Close(ctx); err != nil {
		b.Fatal(err)
	}
}
