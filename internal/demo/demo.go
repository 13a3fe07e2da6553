//go:build linux

package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/app"
	"github.com/percolator-go/percolator/examples/webindex/index"
	"github.com/percolator-go/percolator/internal/localcluster"
)

const (
	// nodeOfDemo is set in the environment of the demo's nodes.
	nodeOfDemo = "WEBINDEX_DEMO_NODE"
	maxNodes   = 9 // each has a digit
	// patience is how long the cluster may take to begin, drainTime its nodes to end.
	patience  = time.Minute
	drainTime = 20 * time.Second
	// refresh is how often the terminal is told how things are, report another output.
	refresh = 500 * time.Millisecond
	report  = time.Second
)

// Register links the observers of the web index in the demo's nodes, and in no others.
func Register(r *percolator.Registry) {
	if os.Getenv(nodeOfDemo) != "" {
		index.Register(r)
	}
}

// Options adds the command to a program whose nodes register by Register.
func Options() []app.Option {
	d := &demo{}
	return []app.Option{app.Command("demo",
		"Run a throw-away cluster in this terminal: kill, pause and add nodes while it works",
		d.run, func(flags *flag.FlagSet) {
			flags.IntVar(&d.count, "nodes", 3, "how many nodes begin it, 3 to 9")
			flags.IntVar(&d.pages, "pages", 2000, "how many pages the web index has")
			flags.DurationVar(&d.stop, "for", 0, "end by itself after this time; 0: on q or Ctrl-C")
		})}
}

// demo is one run of the command; only its goroutine touches it.
type demo struct {
	count, pages int
	stop         time.Duration

	out      io.Writer
	terminal bool
	nodes    *localcluster.Cluster
	states   [maxNodes]string // empty: it was not started
	chosen   int
	crawl    *crawl
	db       *percolator.DB
	pending  string // what waits, as it was last known
}

func (d *demo) run(ctx context.Context, call *app.Invocation) (err error) {
	if d.count < 3 || d.count > maxNodes {
		return call.Usage("--nodes %d: a cluster that outlives the loss of a node has 3 at least, "+
			"the demo %d at most", d.count, maxNodes)
	}
	if d.pages < 1 {
		return call.Usage("--pages %d: there must be some", d.pages)
	}
	d.out = call.Stdout
	if d.terminal = isTerminal(os.Stdout); d.terminal {
		d.out = os.Stdout // the other has what commands terminals made harmless
	}
	dir, err := os.MkdirTemp("", "percolator-demo-")
	if err != nil {
		return err
	}
	keep := false
	defer func() {
		if !keep {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if d.stop > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.stop)
		defer cancel()
	}
	end, err := d.begin(ctx, dir)
	defer func() { err = errors.Join(err, end()) }()
	if err != nil {
		if keep = ctx.Err() == nil; keep { // the error names logs
			err = fmt.Errorf("%w\nwhat the nodes have left is in %s: remove it once you have "+
				"looked at it", err, dir)
		}
		return err
	}
	defer keyByKey(call.Stdin)()
	return d.play(ctx, readKeys(call.Stdin))
}

// begin starts the nodes and what works on them. end must be called, also after an error.
// Nodes run the program by the name that it was called by.
func (d *demo) begin(ctx context.Context, dir string) (end func() error, err error) {
	self, err := exec.LookPath(os.Args[0])
	if err != nil {
		return func() error { return nil }, err
	}
	// What the caller's environment says of another cluster is not for these nodes; an empty
	// variable is none.
	env := []string{}
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "PERCOLATOR_") {
			env = append(env, name+"=")
		}
	}
	d.nodes, err = localcluster.New(localcluster.Config{
		Nodes: d.count, Spare: maxNodes - d.count, Dir: dir, Binary: self,
		Env:  append(env, nodeOfDemo+"=1"),
		Args: []string{"--log-level", "warn", "--memtable-size", "8388608"},
	})
	if err != nil {
		return func() error { return nil }, err
	}
	working, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	end = func() error {
		stop()
		work.Wait()
		var closing error
		if d.db != nil {
			closing = d.db.Close()
		}
		d.say("ending the nodes")
		for i, p := range d.nodes.Nodes() {
			if d.states[i] == paused {
				_ = p.Resume() // it could not hear of its end
			}
		}
		_ = d.nodes.Terminate(drainTime) // Close kills what is left; nothing of it is kept
		return errors.Join(closing, d.nodes.Close())
	}
	starting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	d.say("starting %d nodes", d.count)
	if err := d.nodes.Start(starting); err != nil {
		return end, err
	}
	if d.db, err = d.nodes.Dial(starting); err != nil {
		return end, err
	}
	search, err := serveSearch(working, d.db)
	if err != nil {
		return end, err
	}
	for i := range d.count {
		d.states[i] = running
		d.introduce(i)
	}
	d.say("search  http://%s/?q=harbour", search)
	d.say("")
	d.say("keys: 1-9 choose a node, which is in brackets; a add a node; q quit")
	d.say("the chosen one: k kill -9, s start again, p pause (SIGSTOP), r resume")
	d.say("")
	d.crawl = &crawl{db: d.db, total: d.pages}
	work.Go(func() { d.crawl.run(working) })
	return end, nil
}

// States of nodes.
const (
	running = "runs"
	paused  = "paused"
	killed  = "killed"
)

func (d *demo) introduce(i int) {
	p := d.nodes.Node(i)
	d.say("node %d  clients %s  console http://%s/  pid %d", i+1, p.Listen, p.HTTP, p.PID())
}

// say prints a line over the line of states.
func (d *demo) say(format string, args ...any) {
	erase := ""
	if d.terminal {
		erase = "\r\x1b[K"
	}
	_, _ = fmt.Fprintf(d.out, erase+format+"\n", args...)
}

// play does what the keys say, and shows how things are, until it is quit or ctx ends.
func (d *demo) play(ctx context.Context, keys <-chan byte) error {
	every := report
	if d.terminal {
		every = refresh
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		d.show(ctx)
		select {
		case <-ctx.Done():
			d.say("")
			return nil
		case key := <-keys:
			if key == 'q' {
				d.say("")
				return nil
			}
			if err := d.press(key); err != nil {
				d.say("node %d: %v", d.chosen+1, err)
			}
		case <-tick.C:
		}
	}
}

// press does what a key asks for.
func (d *demo) press(key byte) error {
	if key >= '1' && key <= '9' {
		if d.states[key-'1'] == "" {
			d.say("there is no node %c", key)
			return nil
		}
		d.chosen = int(key - '1')
		return nil
	}
	i := d.chosen
	p := d.nodes.Node(i)
	switch key {
	case 'k':
		if err := p.Kill(); err != nil {
			return err
		}
		d.states[i] = killed
		d.say("node %d killed (kill -9): what it led is led elsewhere after an election", i+1)
	case 'p':
		if err := p.Pause(); err != nil {
			return err
		}
		d.states[i] = paused
		d.say("node %d paused (SIGSTOP): the others take it for dead after some seconds", i+1)
	case 'r':
		if err := p.Resume(); err != nil {
			return err
		}
		d.states[i] = running
		d.say("node %d resumed (SIGCONT)", i+1)
	case 's':
		return d.start(i, "started again on what it had synced")
	case 'a':
		for j, state := range d.states {
			if state == "" {
				d.chosen = j
				return d.start(j, "added: replicas move to it by and by")
			}
		}
		d.say("there are %d nodes already", maxNodes)
	}
	return nil
}

func (d *demo) start(i int, what string) error {
	if err := d.nodes.Node(i).Start(); err != nil {
		return err
	}
	d.states[i] = running
	d.say("node %d %s", i+1, what)
	d.introduce(i)
	return nil
}

// askTime bounds the question what waits: the answer needs all tablets.
const askTime = 400 * time.Millisecond

// show says how far the work is, with what is still waiting, and what the nodes do.
func (d *demo) show(ctx context.Context) {
	asked, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if p, err := d.db.Pending(asked); err == nil {
		d.pending = fmt.Sprint(p.Runnable)
	} else if !strings.HasSuffix(d.pending, "?") {
		d.pending += "?" // as it was before some tablet had nobody to answer for it
	}
	var states []string
	for i, state := range d.states {
		if state == "" {
			continue
		}
		if state == running && !d.nodes.Node(i).Running() {
			state = "ended by itself"
		}
		text := strings.TrimSuffix(fmt.Sprintf("%d %s", i+1, state), " "+running)
		if i == d.chosen {
			text = "[" + text + "]"
		}
		states = append(states, text)
	}
	line := fmt.Sprintf("pages %d of %d, edits %d, waiting %s, slowest write %v | nodes %s",
		d.crawl.loaded.Load(), d.pages, d.crawl.edited.Load(), d.pending,
		d.crawl.slowestWrite().Round(time.Millisecond), strings.Join(states, " "))
	if d.terminal {
		// Where it is too long for the terminal it ends there: on a second line nothing would
		// clear it.
		_, _ = fmt.Fprint(d.out, "\r\x1b[K\x1b[?7l"+line+"\x1b[?7h")
		return
	}
	_, _ = fmt.Fprintln(d.out, line)
}
