package workload

import (
	"context"
	"fmt"
	"strconv"

	percolator "github.com/percolator-go/percolator"
)

// Counting is the exact-counting workload (§2.4): a strong observer adds one to a counter for every changed row. With one
// change a row, the counters add up to the number of rows, however often the observer is started.
type Counting struct {
	Shards int // cells that the counter is spread over; 1 makes every two runs conflict
}

// The columns of the counting workload.
var (
	CountIn    = percolator.Column{Table: "counting", Name: "in"}
	CountTotal = percolator.Column{Table: "counting", Name: "total"}
)

// Register adds the counting observer.
func (c Counting) Register(r *percolator.Registry) {
	r.Strong("counting", CountIn, func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
		row := c.counter(n.Row)
		v, _, err := tx.Get(ctx, row, CountTotal)
		if err != nil {
			return err
		}
		sum := 0
		if len(v) > 0 {
			if sum, err = strconv.Atoi(string(v)); err != nil {
				return err
			}
		}
		tx.Set(row, CountTotal, strconv.AppendInt(nil, int64(sum+1), 10))
		return nil
	})
}

func (c Counting) counter(row string) string {
	sum := 0
	for _, b := range []byte(row) {
		sum = sum*31 + int(b)
	}
	return fmt.Sprintf("total/%d", (sum&0xffff)%max(c.Shards, 1))
}

// Load changes each of the rows [from, to) once.
func (c Counting) Load(ctx context.Context, db *percolator.DB, from, to int) error {
	l := db.Loader(percolator.LoaderConfig{Workers: 32})
	for i := from; i < to; i++ {
		err := l.Load(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(fmt.Sprintf("row/%06d", i), CountIn, []byte("x"))
			return nil
		})
		if err != nil {
			_ = l.Close()
			return err
		}
	}
	return l.Close()
}

// Check compares the counters with the number of rows that have been changed once each.
func (c Counting) Check(ctx context.Context, db *percolator.DB, want int) error {
	s, err := db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	sum := 0
	for cell, err := range s.Scan(ctx, percolator.Rows(CountTotal.Table).Prefix("total/"), CountTotal) {
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(cell.Value))
		if err != nil {
			return err
		}
		sum += n
	}
	if sum != want {
		return fmt.Errorf("workload: exact counting: the observer counted %d changes of %d", sum, want)
	}
	return nil
}
