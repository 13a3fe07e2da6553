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
	// nodeOfDemo is the environment variable that marks the demo's nodes.
	nodeOfDemo = "WEBINDEX_DEMO_NODE"
	maxNodes   = 9 // each is chosen by a digit key
	// startTimeout limits the start of the cluster, and drainTime the orderly end of its nodes.
	startTimeout = time.Minute
	drainTime    = 20 * time.Second
	// refresh is the interval between updates of a terminal, and report the interval between lines
	// of any other output.
	refresh = 500 * time.Millisecond
	report  = time.Second
)

// Register links the observers of the web index in the demo's nodes only.
func Register(r *percolator.Registry) {
	if os.Getenv(nodeOfDemo) != "" {
		index.Register(r)
	}
}

// Options returns the options that add the command to a program that registers with Register.
func Options() []app.Option {
	d := &demo{}
	return []app.Option{app.Command("demo",
		"Run a throw-away cluster in this terminal: kill, pause and add nodes while it works",
		d.run, func(flags *flag.FlagSet) {
			flags.IntVar(&d.count, "nodes", 3, "initial number of nodes, 3 to 9")
			flags.IntVar(&d.pages, "pages", 2000, "number of pages of the web index")
			flags.DurationVar(&d.stop, "for", 0, "exit after this time; 0: on q or Ctrl-C")
		})}
}

// demo is one run of the command; only its goroutine touches it.
type demo struct {
	count, pages int
	stop         time.Duration

	out      io.Writer
	terminal bool
	nodes    *localcluster.Cluster
	states   [maxNodes]string // empty: not started
	chosen   int
	crawl    *crawl
	db       *percolator.DB
	pending  string // last known number of waiting notifications
}

func (d *demo) run(ctx context.Context, call *app.Invocation) (err error) {
	if d.count < 3 || d.count > maxNodes {
		return call.Usage("--nodes %d: must be from 3, to survive the loss of a node, to %d",
			d.count, maxNodes)
	}
	if d.pages < 1 {
		return call.Usage("--pages %d: must be at least 1", d.pages)
	}
	d.out = call.Stdout
	if d.terminal = isTerminal(os.Stdout); d.terminal {
		d.out = os.Stdout // call.Stdout would escape terminal sequences
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
		if keep = ctx.Err() == nil; keep { // the error names log files in dir
			err = fmt.Errorf("%w\nthe nodes' directories are kept in %s for inspection: remove it "+
				"afterwards", err, dir)
		}
		return err
	}
	defer keyByKey(call.Stdin)()
	return d.play(ctx, readKeys(call.Stdin))
}

// begin starts the nodes and their load. The caller must call end, also after an error. Nodes run
// the program under the name by which it was called.
func (d *demo) begin(ctx context.Context, dir string) (end func() error, err error) {
	self, err := exec.LookPath(os.Args[0])
	if err != nil {
		return func() error { return nil }, err
	}
	// The caller's settings of another cluster must not reach these nodes; an empty variable counts as
	// unset.
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
		d.say("stopping the nodes")
		for i, p := range d.nodes.Nodes() {
			if d.states[i] == paused {
				_ = p.Resume() // a stopped process does not handle signals
			}
		}
		_ = d.nodes.Terminate(drainTime) // kills late nodes; their data is not kept
		return errors.Join(closing, d.nodes.Close())
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
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

// say prints a line above the status line.
func (d *demo) say(format string, args ...any) {
	erase := ""
	if d.terminal {
		erase = "\r\x1b[K"
	}
	_, _ = fmt.Fprintf(d.out, erase+format+"\n", args...)
}

// play handles keys and shows the status until q or the end of ctx.
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

// press handles a key.
func (d *demo) press(key byte) error {
	if key >= '1' && key <= '9' {
		if d.states[key-'1'] == "" {
			d.say("no node %c", key)
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
		d.say("node %d killed (kill -9): its tablets elect leaders on other nodes", i+1)
	case 'p':
		if err := p.Pause(); err != nil {
			return err
		}
		d.states[i] = paused
		d.say("node %d paused (SIGSTOP): the others consider it dead after a few seconds", i+1)
	case 'r':
		if err := p.Resume(); err != nil {
			return err
		}
		d.states[i] = running
		d.say("node %d resumed (SIGCONT)", i+1)
	case 's':
		return d.start(i, "restarted on its synced data")
	case 'a':
		for j, state := range d.states {
			if state == "" {
				d.chosen = j
				return d.start(j, "added: replicas move to it gradually")
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

// askTime bounds the request for the waiting notifications, which involves all tablets.
const askTime = 400 * time.Millisecond

// show prints the progress, the waiting notifications and the nodes' states.
func (d *demo) show(ctx context.Context) {
	asked, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if p, err := d.db.Pending(asked); err == nil {
		d.pending = fmt.Sprint(p.Runnable)
	} else if !strings.HasSuffix(d.pending, "?") {
		d.pending += "?" // the last known number: some tablet does not answer
	}
	var states []string
	for i, state := range d.states {
		if state == "" {
			continue
		}
		if state == running && !d.nodes.Node(i).Running() {
			state = "exited"
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
		// The line is cut at the terminal's width: a wrapped second line would not be cleared.
		_, _ = fmt.Fprint(d.out, "\r\x1b[K\x1b[?7l"+line+"\x1b[?7h")
		return
	}
	_, _ = fmt.Fprintln(d.out, line)
}
