package tpce

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
	"golang.org/x/sync/errgroup"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
)

// Parts of the nodes' CPU.
const (
	partTransactions = "transactions, observers"
	partMVCC         = "versions and locks (MVCC)"
	partRaft         = "tablets and Raft"
	partStorage      = "storage (Badger)"
	partMessages     = "messages (gRPC, protobuf)"
	partActors       = "actors"
	partSockets      = "kernel: sockets"
	partDisk         = "kernel: files and syncs"
	partAllocation   = "allocation"
	partCollection   = "garbage collection"
	partScheduling   = "scheduling, timers, idle"
	partOther        = "other"
)

// parts assigns functions, by prefix of their full name, to parts. The first match counts.
var parts = []struct{ prefix, part string }{
	{"github.com/percolator-go/percolator/internal/mvcc", partMVCC},
	{"github.com/percolator-go/percolator/actors/tablet", partRaft},
	{"github.com/percolator-go/percolator/store", partStorage},
	{"github.com/percolator-go/percolator/internal/rpc", partMessages},
	{"github.com/percolator-go/percolator/internal/wire", partMessages},
	{"github.com/percolator-go/percolator/api/", partMessages},
	{"github.com/percolator-go/percolator/cluster/remoting", partMessages},
	{"github.com/percolator-go/percolator/internal/actorkit", partActors},
	{"github.com/percolator-go/percolator", partTransactions},
	{"go.etcd.io/raft", partRaft},
	{"github.com/dgraph-io/", partStorage},
	{"github.com/tidwall/btree", partStorage},
	{"google.golang.org/grpc", partMessages},
	{"google.golang.org/protobuf", partMessages},
	{"golang.org/x/net", partMessages},
	{"github.com/asynkron/protoactor-go", partActors},
	{"net.(*", partSockets},
	{"os.(*File)", partDisk},
	{"golang.org/x/sys/unix.", partDisk},
}

// partOf assigns a stack, from the innermost function, to a part: by what the runtime does, if that
// is of a kind of its own, else by the innermost function of a known package. Functions of the
// standard library count to their caller.
func partOf(stack []string) string {
	for _, f := range stack {
		switch {
		case strings.HasPrefix(f, "runtime.gcBgMarkWorker"), strings.HasPrefix(f, "runtime.gcAssistAlloc"),
			strings.HasPrefix(f, "runtime.bgsweep"), strings.HasPrefix(f, "runtime.bgscavenge"):
			return partCollection
		}
	}
	onlyRuntime := true
	for _, f := range stack {
		if strings.HasPrefix(f, "runtime.mallocgc") || strings.HasPrefix(f, "runtime.growslice") {
			return partAllocation
		}
		onlyRuntime = onlyRuntime && strings.HasPrefix(f, "runtime.")
		for _, p := range parts {
			if strings.HasPrefix(f, p.prefix) {
				return p.part
			}
		}
	}
	if onlyRuntime {
		return partScheduling
	}
	return partOther
}

// breakdown sums the processor time of profiles by parts.
func breakdown(profiles ...*profile.Profile) map[string]time.Duration {
	sums := map[string]time.Duration{}
	for _, p := range profiles {
		for _, s := range p.Sample {
			var stack []string
			for _, l := range s.Location {
				for _, line := range l.Line {
					stack = append(stack, line.Function.Name)
				}
			}
			sums[partOf(stack)] += time.Duration(s.Value[len(s.Value)-1]) // nanoseconds
		}
	}
	return sums
}

// profiled is the duration of the profiles, in seconds.
const profiled = 5

// explain profiles the nodes under load, and records how the CPU of one transaction, each, splits
// into the parts of the profiles.
func (s *onNodes) explain(ctx context.Context, r *harness.Run, e *emulator, row string, each time.Duration) error {
	seconds := profiled
	if r.Smoke {
		seconds = 1
	}
	stop := e.load(ctx, overheadCallers, func(kind, time.Time, error) {}) // errors show in the books
	defer stop()
	profiles := make([]*profile.Profile, len(s.cluster.Nodes()))
	g, ctx := errgroup.WithContext(ctx)
	for i, p := range s.cluster.Nodes() {
		g.Go(func() error {
			text, err := p.Get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", seconds))
			if err != nil {
				return err
			}
			profiles[i], err = profile.Parse(bytes.NewReader(text))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	sums := breakdown(profiles...)
	var all time.Duration
	for sum := range maps.Values(sums) {
		all += sum
	}
	if all == 0 {
		return nil
	}
	for _, part := range slices.Sorted(maps.Keys(sums)) {
		share := float64(sums[part]) / float64(all)
		r.Value("where the nodes' CPU goes", part, row+": %", 100*share)
		r.Value("where the nodes' CPU goes", part, row+": µs", share*micros(each))
	}
	return nil
}
