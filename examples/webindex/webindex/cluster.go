package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/test/cluster"
)

// Bounds of what a client of a cluster puts up with.
const (
	maxNodes    = 15
	dialTimeout = time.Minute
	patience    = 5 // how often a step is begun again that a failure has broken off
	eventEvery  = 20 * time.Millisecond
)

// openCluster starts the processes and connects to them as any client does. There is no
// full-text index: it would belong to one of them.
func (a *application) openCluster(ctx context.Context) (err error) {
	// Next to the node of a run without --nodes, and kept like it.
	dir := filepath.Clean(a.dir) + ".cluster"
	if a.cluster, err = newNodes(dir, a.nodes, a.add, !a.exit); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close(ctx))
		}
	}()
	ready, stop := context.WithTimeout(ctx, readyTimeout)
	defer stop()
	if err := a.cluster.Start(ready); err != nil {
		return err
	}
	fmt.Printf("cluster: %d processes, in %s\n", a.nodes, dir)
	for _, p := range a.cluster.Nodes()[:a.nodes] {
		printNode(p)
	}
	dial, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	a.db, err = a.cluster.Dial(dial)
	return err
}

func printNode(p *cluster.Process) {
	fmt.Printf("  %s  clients %s  console http://%s/  pid %d\n", nodeName(p), p.Listen, p.HTTP,
		p.PID())
}

// event is something that happens to the cluster when a part of the load is done.
type event struct {
	at   float64       // part of the load; above 1: that many times ten seconds after it
	node int           // -1: one is added
	down time.Duration // how long a killed node stays away
}

// afterLoad is what 1 above the whole load means, as time.
const afterLoad = 10 * time.Second

// events are chosen by the seed: so many kills of any node that began the cluster, among
// the load and the time after it, and the additions, during the load. A single kill
// happens early in the load, for those who watch.
func (o options) events() (all []event) {
	rng := rand.New(rand.NewPCG(o.seed, 7))
	for range o.kills {
		e := event{
			rng.Float64() * 1.3, rng.IntN(o.nodes),
			time.Duration(rng.Int64N(int64(5 * time.Second))),
		}
		if o.kills == 1 {
			e.at = 0.2 + 0.2*rng.Float64()
		}
		all = append(all, e)
	}
	for range o.add {
		all = append(all, event{at: 0.4 + 0.5*rng.Float64(), node: -1})
	}
	slices.SortFunc(all, func(x, y event) int { return cmp.Compare(x.at, y.at) })
	return all
}

// trouble lets the events happen, one after the other: never is more than one node away.
type trouble struct {
	app    *application
	events []event
	loaded chan struct{} // closed when the load is done
	done   sync.WaitGroup
	err    error // after done
	lines  []string
}

// begin starts the events of the loader's tree. The caller must wait for done.
func (a *application) begin(ctx context.Context, l *loader) *trouble {
	t := &trouble{app: a, loaded: make(chan struct{})}
	if a.cluster != nil && !a.troubled {
		a.troubled, t.events = true, a.options.events()
	}
	t.done.Go(func() { t.err = t.run(ctx, l) })
	return t
}

func (t *trouble) run(ctx context.Context, l *loader) error {
	added := t.app.nodes
	for _, e := range t.events {
		if err := t.await(ctx, l, e.at); err != nil {
			return err
		}
		var err error
		if e.node < 0 {
			err = t.grow(ctx, l, t.app.cluster.Node(added))
			added++
		} else {
			err = t.strike(ctx, l, t.app.cluster.Node(e.node), e.down)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// await waits for the event's moment.
func (t *trouble) await(ctx context.Context, l *loader, at float64) error {
	tick := time.NewTicker(eventEvery)
	defer tick.Stop()
	for l.done() < min(at, 1) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.loaded: // or it was broken off
			return nil
		case <-tick.C:
		}
	}
	if at <= 1 {
		return nil
	}
	return pause(ctx, time.Duration((at-1)*float64(afterLoad)))
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// strike kills a node and starts it again.
func (t *trouble) strike(ctx context.Context, l *loader, p *cluster.Process,
	down time.Duration) error {
	if err := p.Kill(); err != nil {
		return errors.Join(err, died(p))
	}
	t.say(l, "killed %s (kill -9)", nodeName(p))
	if err := pause(ctx, down); err != nil {
		return err
	}
	if err := startNode(ctx, t.app.cluster, p); err != nil {
		return err
	}
	t.say(l, "%s is back, after %s", nodeName(p), down.Round(time.Millisecond))
	return nil
}

// grow adds a node.
func (t *trouble) grow(ctx context.Context, l *loader, p *cluster.Process) error {
	if err := startNode(ctx, t.app.cluster, p); err != nil {
		return err
	}
	t.say(l, "%s has joined", nodeName(p))
	if !t.app.quiet {
		printNode(p)
	}
	return nil
}

func (t *trouble) say(l *loader, format string, args ...any) {
	line := fmt.Sprintf("%s at %.0f%% of the load", fmt.Sprintf(format, args...), 100*l.done())
	t.lines = append(t.lines, line)
	if !t.app.quiet {
		fmt.Println(line)
	}
}

// String is what has happened, as the summary prints it.
func (t *trouble) String() string {
	if len(t.lines) == 0 {
		return ""
	}
	return "meanwhile: " + strings.Join(t.lines, "; ") + "\n"
}

// patiently repeats a step that may be begun again, as a client does that has some
// patience with its cluster. It counts how often it had to.
func (a *application) patiently(ctx context.Context, step func() error) error {
	for tries := 1; ; tries++ {
		err := step()
		again := errors.Is(err, percolator.ErrUnavailable) ||
			errors.Is(err, percolator.ErrCommitUnknown)
		if err == nil || !again || a.cluster == nil || tries == patience {
			return err
		}
		a.repeated++
		if !a.quiet {
			fmt.Println("again, for:", err)
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
}
