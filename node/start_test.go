package node_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
)

// BenchmarkStart opens a node on directories with more and more rows. What it takes must not grow with them: ten times the
// data may cost twice the time at most. Run it with -benchtime 5x.
func BenchmarkStart(b *testing.B) {
	for _, rows := range []int{20_000, 200_000} {
		dir := b.TempDir()
		fillRows(b, dir, rows)
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			for b.Loop() {
				n := open(b, dir, nil)
				b.StopTimer()
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				if err := n.Close(ctx); err != nil {
					b.Fatal(err)
				}
				cancel()
				b.StartTimer()
			}
		})
	}
}

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
