package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/cluster/clustertest"
)

// This file runs the application as processes and kills them. One goroutine of the test starts,
// kills and queries all of them.

// make supplychain-kill uses more packages and rounds.
var (
	packagesListed = flag.Int("packages", 300, "packages of the lists of TestKilledProcesses")
	killRounds     = flag.Int("rounds", 1, "how often it kills each process")
	killSeed       = flag.Uint64("seed", 1, "of its lists")
)

// commandArgs passes the command line of supplychain to a process that runs it.
const commandArgs = "SUPPLYCHAIN_TEST_COMMAND"

// TestMain runs this program as a node of the test's cluster, or as the command supplychain, if it
// was started as one.
func TestMain(m *testing.M) {
	cluster.Main(register)
	if args, ok := os.LookupEnv(commandArgs); ok {
		os.Args = append(os.Args[:1], strings.Split(args, "\x1f")...)
		main()
		return
	}
	os.Exit(m.Run())
}

// deadline bounds each wait of TestKilledProcesses.
const deadline = 3 * time.Minute

// processes holds three nodes, which run the observers, and starts commands.
type processes struct {
	*testing.T
	cluster *cluster.Cluster
	db      *percolator.DB
	dir     string
}

// TestKilledProcesses kills -9 each node during a cascade, and an import halfway through its list,
// while packages and advisories change. The final state equals the batch computation.
func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	p := startProcesses(t)
	for round := range *killRounds {
		version, next := fmt.Sprintf("0.%d", 2*round), fmt.Sprintf("0.%d", 2*round+1)
		first, increment := makeLists(*killSeed+uint64(round), *packagesListed, version, next)
		p.killImport(first, version)
		p.command("import", p.write("first", first))
		p.settled()
		for i, node := range p.cluster.Nodes() {
			id := fmt.Sprintf("KILL-%d-%d", round, i)
			p.command("advise", id, "lib0")
			p.await("the cascade of "+id, func(ctx context.Context, s *percolator.Snapshot) (bool, error) {
				progress, err := affects.Progress(ctx, s, id)
				if progress.Size < 20 { // of some hundred
					return false, err
				}
				t.Logf("node %d is killed with %d names reached, %d waiting", i, progress.Size,
					progress.Waiting)
				return true, nil
			})
			p.must(node.Kill())
			switch i { // during the outage
			case 0:
				p.command("import", p.write("increment", increment))
			case 1:
				p.command("withdraw", fmt.Sprintf("KILL-%d-0", round), "lib0")
			default:
				p.command("advise", id, "lib0", next) // fixed by the increment
			}
			p.must(node.Start())
			p.must(p.cluster.Ready(t.Context()))
		}
		p.settled()
	}
}

func startProcesses(t *testing.T) *processes {
	p := &processes{T: t, dir: t.TempDir()}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	p.cluster = clustertest.Start(ctx, t, cluster.Config{Nodes: 3})
	var err error
	p.db, err = p.cluster.Dial(ctx)
	p.must(err)
	t.Cleanup(func() { _ = p.db.Close() })
	clustertest.Replicated(ctx, t, p.db, 4) // meta and three tables
	return p
}

func (p *processes) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// write writes a list to a file and returns the file's name.
func (p *processes) write(name, list string) string {
	p.Helper()
	file := filepath.Join(p.dir, name)
	p.must(os.WriteFile(file, []byte(list), 0o600))
	return file
}

// start starts a command of supplychain.
func (p *processes) start(ctx context.Context, args ...string) (*exec.Cmd, *bytes.Buffer) {
	p.Helper()
	args = append([]string{args[0], "--addr", strings.Join(p.cluster.Addrs(), ","), "--insecure"},
		args[1:]...)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), commandArgs+"="+strings.Join(args, "\x1f"))
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	p.must(cmd.Start())
	return cmd, out
}

// command runs a command of supplychain until it succeeds: all of them are idempotent.
func (p *processes) command(args ...string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), deadline)
	defer cancel()
	for {
		cmd, out := p.start(ctx, args...)
		err := cmd.Wait()
		if err == nil {
			return
		}
		p.Logf("%v: %v: %s", args, err, out)
		if ctx.Err() != nil {
			p.FailNow()
		}
	}
}

// killImport imports a list of packages in this version, passes only a part of it to the command,
// and kills the command once some packages are stored.
func (p *processes) killImport(list, version string) {
	p.Helper()
	pipe := filepath.Join(p.dir, "pipe")
	p.must(syscall.Mkfifo(pipe, 0o600))
	ctx, cancel := context.WithTimeout(p.Context(), deadline)
	defer cancel()
	cmd, out := p.start(ctx, "import", pipe)
	// Opened for both directions, so that opening does not block and the command never reads the
	// end.
	w, err := os.OpenFile(pipe, os.O_RDWR, 0)
	p.must(err)
	defer func() { _ = w.Close() }()
	_, err = w.WriteString(list[:min(len(list)*3/4, 32<<10)]) // less than a pipe's capacity
	p.must(err)
	p.await("a part of the list", func(ctx context.Context, s *percolator.Snapshot) (bool, error) {
		for p, err := range packages.Scan(ctx, s, percolator.Rows(packages.Column.Table)) {
			if err != nil || p.Value.Version == version {
				return err == nil, err
			}
		}
		return false, nil
	})
	p.must(cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		p.Fatalf("the import has ended before it was killed: %s", out)
	}
	p.must(os.Remove(pipe))
}

// await polls until the condition holds.
func (p *processes) await(what string,
	ask func(context.Context, *percolator.Snapshot) (bool, error)) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), deadline)
	defer cancel()
	for {
		s, err := p.db.Snapshot(ctx)
		var ok bool
		if err == nil {
			ok, err = ask(ctx, s)
			err = errors.Join(err, s.Close())
		}
		if ok {
			return
		}
		if ctx.Err() != nil {
			p.Fatalf("%s does not come: %v", what, err)
		}
	}
}

// settled waits until nothing is left to run and compares the state with the batch computation.
func (p *processes) settled() {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), deadline)
	defer cancel()
	p.must(p.db.WaitIdle(ctx))
	s, err := p.db.Snapshot(ctx)
	p.must(err)
	defer func() { _ = s.Close() }()
	advised, names, err := verify(ctx, s)
	p.must(err)
	p.Logf("%d advisories, %d affected names: equal", advised, names)
}

// makeLists creates a list of n packages in one version, and a list of some of them in the next
// version with other dependencies. All depend indirectly on lib0, some in cycles, and some through
// names that other packages provide.
func makeLists(seed uint64, count int, version, next string) (first, increment string) {
	random := rand.New(rand.NewPCG(seed, 1))
	stanza := func(i int, version string) string {
		depends := fmt.Sprintf("lib%d", max(i-1-random.IntN(10), 0))
		switch random.IntN(8) {
		case 0:
			depends += fmt.Sprintf(", lib%d", min(i+random.IntN(20), count-1))
		case 1:
			depends += fmt.Sprintf(" | virtual%d", random.IntN(20))
		case 2:
			depends += fmt.Sprintf("\nProvides: virtual%d", random.IntN(20))
		}
		return fmt.Sprintf("Package: lib%d\nVersion: %s\nDepends: %s\n\n", i, version, depends)
	}
	var all, newer strings.Builder
	for i := range count {
		all.WriteString(stanza(i, version))
		if random.IntN(4) == 0 || i == 0 {
			newer.WriteString(stanza(i, next))
		}
	}
	return all.String(), newer.String()
}
