package workload

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/linear"
)

// maxStamps is the maximum number of timestamps in the history; later ones are not checked.
const maxStamps = 200_000

// Oracle requests timestamps through all clients of the load, and then decides whether they
// increased strictly in real time, also over fail-overs (design section 6). A client itself
// refuses a timestamp that is not above those it has seen, so set Load.Others, and Load.Fresh,
// whose clients have seen none.
func Oracle(ctx context.Context, db *percolator.DB, l Load) error {
	began := time.Now()
	var (
		mu     sync.Mutex
		stamps []linear.Stamp
	)
	err := l.run(ctx, func(ctx context.Context, worker int, rng *rand.Rand) error {
		db := l.db(db, worker)
		if l.Fresh != nil && rng.IntN(2) == 0 {
			fresh, done := l.Fresh()
			defer done()
			db = fresh
		}
		s := linear.Stamp{Client: worker, Count: 1, Call: time.Since(began).Nanoseconds()}
		ts, err := handle.Client(db).Timestamp(ctx)
		if err != nil {
			return err
		}
		s.First, s.Return = uint64(ts), time.Since(began).Nanoseconds()
		mu.Lock()
		defer mu.Unlock()
		if len(stamps) < maxStamps {
			stamps = append(stamps, s)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return l.keep("oracle", stamps, wrap("oracle", linear.Oracle(stamps, patience)))
}
