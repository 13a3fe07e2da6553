package tablet

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// BenchmarkOverwrite overwrites a thousand rows in one-phase commits of 64 callers, without
// collection and with a safepoint raised ten times per second, so that all but the versions of the
// last tenth of a second are collected: the cost of collection to users.
func BenchmarkOverwrite(b *testing.B) {
	for _, collect := range []bool{false, true} {
		b.Run(fmt.Sprint("collect=", collect), func(b *testing.B) {
			r := newRig(b, store.Options{Dir: b.TempDir()})
			r.now.Store(uint64(mvcc.TimestampAt(time.Now().UnixMilli())))
			const callers = 64
			var writers, collector sync.WaitGroup
			done := make(chan struct{})
			if collect {
				collector.Go(func() {
					tick := time.NewTicker(time.Second / 10)
					defer tick.Stop()
					for {
						select {
						case <-done:
							return
						case <-tick.C:
							r.raise(2, r.take(1))
						}
					}
				})
			}
			b.ResetTimer()
			cpu := cpuTime()
			for c := range callers {
				writers.Go(func() {
					for i := c; i < b.N; i += callers {
						r.do(2, onePhaseOf(r.take(1),
							put(fmt.Sprintf("%d-%d", c, i%16), "0123456789abcdef")))
					}
				})
			}
			writers.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "txn/s")
			b.ReportMetric(float64((cpuTime()-cpu).Microseconds())/float64(b.N), "cpu-µs/op")
			close(done)
			collector.Wait()
			b.ReportMetric(float64(r.status(2).Collected)/float64(b.N), "collected/op")
		})
	}
}
