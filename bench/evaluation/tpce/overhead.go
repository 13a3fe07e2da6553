package tpce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/bench/evaluation/postgres"
	"github.com/percolator-go/percolator/node"
)

// subject is a store whose CPU is measured.
type subject struct {
	store  store
	cpu    func() time.Duration // of its servers
	nodes  *onNodes             // nil: none
	db     *percolator.DB       // nil: not Percolator
	closed func() error
}

// subjectKind is a way to run the brokerage.
type subjectKind struct {
	name string
	// baseline is the name of the kind with the same durability that it is compared with.
	baseline string
	open     func(ctx context.Context, r *harness.Run, d *dataset) (*subject, error)
}

const (
	postgresAlone    = "PostgreSQL"
	postgresStandbys = "PostgreSQL, two standbys, one of them synchronous"
	insideProcess    = "one process"
	oneNode          = "one node"
	threeNodes       = "three nodes, three replicas"
)

// subjects are in the order of each round.
var subjects = []subjectKind{
	{postgresAlone, "", openAlone},
	{insideProcess, postgresAlone, openInside},
	{oneNode, postgresAlone, openOne},
	{postgresStandbys, "", openStandbys},
	{threeNodes, postgresStandbys, openThree},
}

// Sizes of the comparison.
const (
	overheadScale   = 2
	overheadCallers = 32
	openRate        = 200 // transactions per second of the open loop
)

// cost is the table of the comparison.
const cost = "CPU of a transaction"

func overhead(ctx context.Context, r *harness.Run) error {
	_, missing := postgres.Bin()
	if missing != nil {
		r.Logf("skipped: %v", missing)
		r.Note("PostgreSQL was not measured: %v.", missing)
	}
	for range min(r.Rounds, 2) { // of which each takes 90 s
		used := map[string]float64{}
		for _, k := range subjects {
			if k.baseline == "" && missing != nil || r.Smoke && (k.name == threeNodes || k.name == postgresStandbys) {
				continue
			}
			f, err := k.measure(ctx, r)
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			used[k.name] = micros(f.client + f.server)
			if base := used[k.baseline]; base != 0 {
				r.Ratio(cost, k.name, used[k.name]/base, "≤ 5")
			}
		}
	}
	r.Paper(cost, threeNodes, "about 30 times a database's (§3.3)")
	r.Note("%d callers without pauses. The CPU is that of servers and load generator; the ratio is to PostgreSQL with the same durability: "+
		"one synced copy, or a majority of three.", overheadCallers)
	r.Note("Commissions are written to a side table by each trade-result; an observer adds up to %d of them in one transaction. "+
		"A commission's lag ends when its broker's total has grown by as many trades as had one by then; timestamps have whole milliseconds.", aggregated)
	r.Note("PostgreSQL runs stored procedures, one message each way; Percolator's client plans each transaction, which takes several.")
	return nil
}

// measure runs the mix on a new store.
func (k subjectKind) measure(ctx context.Context, r *harness.Run) (f driven, err error) {
	scale, d := overheadScale, 5*time.Second
	if r.Smoke {
		scale, d = 1, time.Second
	}
	data := newDataset(r.Seed, scale)
	s, err := k.open(ctx, r, data)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.closed()) }()
	e := newEmulator(data, s.store)
	var before percolator.Stats
	var since percolator.Timestamp
	if s.db != nil {
		before = s.db.Stats()
		if err := s.db.View(ctx, func(_ context.Context, v *percolator.Snapshot) error {
			since = v.StartTS()
			return nil
		}); err != nil {
			return f, err
		}
	}
	if f, err = drive(ctx, e, overheadCallers, d/2, d, s.cpu); err != nil {
		return f, err
	}
	r.Value(cost, k.name, "µs CPU", micros(f.client+f.server))
	if k.name != insideProcess {
		r.Value(cost, k.name, "µs CPU of servers", micros(f.server))
	}
	r.Value(cost, k.name, "transactions/s", f.perSecond)
	if s.db != nil {
		recordStats(r, k.name, before, s.db.Stats())
	}
	opened := time.Now()
	open, err := e.openLoop(ctx, openRate, d/2, overheadCallers*4)
	if err != nil && !errors.Is(err, harness.ErrLoad) {
		return f, err
	}
	r.Value(cost, k.name, fmt.Sprintf("ms p50 at %d/s", openRate), open.Millis(0.5))
	r.Value(cost, k.name, fmt.Sprintf("ms p99 at %d/s", openRate), open.Millis(0.99))
	if s.db != nil {
		if err := recordLags(ctx, r, k.name, s.db, since, period{"under full load", f.began, f.began.Add(f.took)},
			period{fmt.Sprintf("at %d/s", openRate), opened, time.Now()}); err != nil {
			return f, err
		}
	}
	if s.nodes != nil {
		if err := s.nodes.explain(ctx, r, e, k.name, f.server); err != nil {
			return f, err
		}
	}
	r.Logf("%s: %v CPU each, %.0f transactions/s", k.name, f.client+f.server, f.perSecond)
	return f, e.settleBooks(ctx)
}

// recordStats records the messages, two-phase commits and conflicts of the client's transactions,
// without those of observers.
func recordStats(r *harness.Run, row string, before, after percolator.Stats) {
	each := func(of func(percolator.Stats) uint64) float64 {
		all := func(s percolator.Stats) uint64 { return s.OnePhase + s.TwoPhase + s.ReadOnly }
		return float64(of(after)-of(before)) / float64(max(1, all(after)-all(before)))
	}
	r.Value(cost, row, "messages", each(func(s percolator.Stats) (sum uint64) {
		for n := range maps.Values(s.Messages) {
			sum += n
		}
		return sum
	}))
	r.Value(cost, row, "% two-phase", 100*each(func(s percolator.Stats) uint64 { return s.TwoPhase }))
	r.Value(cost, row, "% conflicts", 100*each(func(s percolator.Stats) uint64 { return s.Conflicts + s.Locked }))
}

func openAlone(ctx context.Context, r *harness.Run, d *dataset) (*subject, error) {
	return openServers(ctx, r, d, 0)
}

func openStandbys(ctx context.Context, r *harness.Run, d *dataset) (*subject, error) {
	return openServers(ctx, r, d, 2)
}

// openServers returns a brokerage in PostgreSQL with a number of standbys.
func openServers(ctx context.Context, r *harness.Run, d *dataset, standbys int) (_ *subject, err error) {
	var dirs []string
	remove := func() (err error) {
		for _, dir := range dirs {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, remove())
		}
	}()
	for range 1 + standbys {
		dir, err := os.MkdirTemp(r.Dir, "postgres-")
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
	}
	s, err := openPostgres(ctx, dirs[0])
	if err != nil {
		return nil, err
	}
	servers := []*postgres.Server{s.server}
	stop := func() (err error) {
		for _, server := range slices.Backward(servers) {
			err = errors.Join(err, server.Close())
		}
		return err
	}
	err = s.load(ctx, d)
	for _, dir := range dirs[1:] {
		if err == nil {
			var standby *postgres.Server
			if standby, err = s.server.Standby(ctx, dir); err == nil {
				servers = append(servers, standby)
			}
		}
	}
	if err == nil && standbys > 0 {
		err = s.server.Synchronous(ctx, standbys)
	}
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return &subject{
		store: s,
		cpu: func() (sum time.Duration) {
			for _, server := range servers {
				sum += server.CPU()
			}
			return sum
		},
		closed: func() error { return errors.Join(stop(), remove()) },
	}, nil
}

// openInside returns a brokerage in a node of this process, without sockets.
func openInside(ctx context.Context, r *harness.Run, d *dataset) (*subject, error) {
	dir, err := os.MkdirTemp(r.Dir, "tpce-")
	if err != nil {
		return nil, err
	}
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Observers = dir, "127.0.0.1:0", "", true, observe
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &subject{
		cpu: func() time.Duration { return 0 }, db: n.DB(), // its CPU is this process's
		// not under ctx, which may have ended
		closed: func() error { return errors.Join(n.Close(context.WithoutCancel(ctx)), os.RemoveAll(dir)) },
	}
	in := &inPercolator{db: n.DB(), tablets: tabletsEach}
	s.store = in
	if err := errors.Join(in.createTables(ctx, d), in.load(ctx, d)); err != nil {
		return nil, errors.Join(err, s.closed())
	}
	return s, nil
}

func openOne(ctx context.Context, r *harness.Run, d *dataset) (*subject, error) {
	return openLayout(ctx, r, d, layout{nodes: 1, replicas: 1})
}

func openThree(ctx context.Context, r *harness.Run, d *dataset) (*subject, error) {
	return openLayout(ctx, r, d, layout{nodes: 3, replicas: 3})
}

func openLayout(ctx context.Context, r *harness.Run, d *dataset, l layout) (*subject, error) {
	s, err := openNodes(ctx, r.Dir, l)
	if err != nil {
		return nil, err
	}
	if _, err := s.prepare(ctx, d); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return &subject{store: s, cpu: s.cpu, nodes: s, db: s.db, closed: s.close}, nil
}
