package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/salvage"
	"github.com/percolator-go/percolator/store"
)

// `recover` recovers a cluster that has permanently lost a quorum. Package salvage works on the
// directories of stopped nodes; recoververify.go verifies the cluster afterwards.

// probeTimeout bounds the attempt to connect to an address of a node that is declared dead.
const probeTimeout = time.Second

// RecoverCommand groups the commands for the loss of a quorum.
func RecoverCommand(d *shell.Deps) *cobra.Command {
	cmd := shell.Group("recover", "Recover a cluster that has permanently lost a quorum",
		"recover inspect --dir /var/lib/percolator > n1.json\n"+
			"recover plan n1.json n2.json --dead 7012345 --dead 7067890 --out plan.json\n"+
			"recover apply plan.json --dir /var/lib/percolator\n"+
			"recover verify",
		recoverInspect(d), recoverPlan(d), recoverApply(d), recoverVerify(d))
	cmd.Long = `Recover a cluster after the nodes with a quorum of some tablets are permanently lost: their
machines or disks will not come back. Acknowledged writes may be lost with them. If there is a
recent enough backup, restore that instead; if the nodes can come back, wait for them.

Stop all surviving nodes. Inspect the directory of each on its machine, make one plan from all
inspections, read it, and apply it to every directory before any node is started.
docs/operating/backup.md has the procedure.`
	return cmd
}

// dirFlags name a stopped node's directory.
type dirFlags struct{ dir, logDir string }

func (f *dirFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.dir, "dir", "", "directory of the stopped node, as given to start")
	cmd.Flags().StringVar(&f.logDir, "log-dir", "", "directory of its Raft log, if start was given one")
}

// open opens the directory's store, which must exist, calls fn and closes the store.
func (f *dirFlags) open(cmd *cobra.Command, fn func(*store.Store) error) error {
	if f.dir == "" {
		return shell.Usagef(cmd, "name the directory of a stopped node with --dir")
	}
	// Opening would create a store if there is none.
	if _, err := os.Stat(filepath.Join(f.dir, "VERSION")); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not a node's directory: it does not exist, or contains no VERSION file", f.dir)
	} else if err != nil {
		return err
	}
	st, err := store.Open(store.Options{Dir: f.dir, LogDir: f.logDir})
	if errors.Is(err, store.ErrInUse) {
		return shell.WithHint(err, "stop the node first")
	}
	if err != nil {
		return err
	}
	if err := fn(st); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", f.dir, err), st.Close())
	}
	return st.Close()
}

func recoverInspect(d *shell.Deps) *cobra.Command {
	f := &dirFlags{}
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "Print the contents of a stopped node's directory, in JSON, for `recover plan`",
		Example: "recover inspect --dir /var/lib/percolator > n1.json\n" +
			"recover inspect --dir data --log-dir /fast/log > n1.json",
	}
	f.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return f.open(cmd, func(st *store.Store) error {
			in, err := salvage.Inspect(st)
			if err != nil {
				return err
			}
			return d.Out.Object(in)
		})
	}
	return d.WithOutput(cmd)
}

// planning is one `recover plan`.
type planning struct {
	dirs    []string
	dead    []int64
	gaps    bool
	noProbe bool
	out     string
}

func recoverPlan(d *shell.Deps) *cobra.Command {
	p := &planning{}
	cmd := &cobra.Command{
		Use:   "plan [FILE...]",
		Short: "Choose the surviving replica of each tablet",
		Long: `Make a plan from the inspections in FILEs, and from directories on this machine. Of each tablet
without a quorum the replica whose log ends last goes on alone; tablets that have their quorum
among the survivors are left as they are.

Every node of the cluster is either inspected or declared dead with --dead ID. A plan is refused
while a node that may be part of a quorum is neither, and while something answers at the address
of a node that is declared dead.

Entries at the end of a log that are not known to be committed are kept and count as committed.
Writes that only dead nodes have acknowledged, after the end of that log, are lost; the survivors
do not show whether there were any.`,
		Example: "recover plan n1.json n2.json --dead 7012345 --dead 7067890 --out plan.json\n" +
			"recover plan --dir /data/n1 --dir /data/n2 --dead 7012345 --out plan.json",
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&p.dirs, "dir", nil, "directories of stopped nodes on this machine")
	flags.Int64SliceVar(&p.dead, "dead", nil, "ids of permanently lost nodes")
	flags.BoolVar(&p.gaps, "accept-gaps", false,
		"create empty tablets for rows without a surviving replica; without it they are listed, and no plan is made")
	flags.BoolVar(&p.noProbe, "no-probe", false,
		"do not probe the addresses of the dead nodes, because other services use them now")
	flags.StringVar(&p.out, "out", "plan.json", "file to write the plan to; an existing file is not replaced")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return p.run(cmd, d, args) }
	return d.WithOutput(cmd)
}

func (p *planning) run(cmd *cobra.Command, d *shell.Deps, files []string) error {
	if len(files) == 0 && len(p.dirs) == 0 {
		return shell.Usagef(cmd, "pass the files printed by `recover inspect`, or directories with --dir")
	}
	var all []*salvage.Inspection
	for _, name := range files {
		in := &salvage.Inspection{}
		if err := readJSON(name, in, "inspection, as `recover inspect` prints it"); err != nil {
			return err
		}
		all = append(all, in)
	}
	for _, dir := range p.dirs {
		f := &dirFlags{dir: dir}
		err := f.open(cmd, func(st *store.Store) error {
			in, err := salvage.Inspect(st)
			all = append(all, in)
			return err
		})
		if err != nil {
			return err
		}
	}
	opts := salvage.Options{AcceptGaps: p.gaps, Now: time.Now()}
	for _, id := range p.dead {
		opts.Dead = append(opts.Dead, uint64(id))
	}
	plan, err := salvage.Make(all, opts)
	if err != nil {
		return adviseRecovery(err)
	}
	if !p.noProbe {
		if err := probe(cmd.Context(), all, plan); err != nil {
			return err
		}
	}
	if err := writePlan(p.out, plan); err != nil {
		return err
	}
	return p.print(d.Out, plan)
}

// adviseRecovery adds a remedy to an error of planning.
func adviseRecovery(err error) error {
	switch {
	case errors.Is(err, salvage.ErrMayLive):
		return shell.WithHint(err, "inspect these nodes' directories too, or, if they are permanently lost, name each with --dead")
	case errors.Is(err, salvage.ErrNothingLost):
		return shell.WithHint(err, "no plan was written: start the inspected nodes, and replace the dead ones with new nodes; "+
			"`percolator doctor` lists the remaining steps")
	case errors.Is(err, salvage.ErrUnfit):
		return shell.WithHint(err, "inspect the current directory of each surviving node once")
	case errors.Is(err, salvage.ErrGap):
		return shell.WithHint(err, "restore a backup, or accept the loss of these rows with --accept-gaps")
	}
	return err
}

// probe returns an error if a service answers at an address of a node that the plan declares dead.
func probe(ctx context.Context, all []*salvage.Inspection, plan *salvage.Plan) error {
	for node, addrs := range plan.DeadAt(all) {
		for _, addr := range addrs {
			trying, cancel := context.WithTimeout(ctx, probeTimeout)
			c, err := (&net.Dialer{}).DialContext(trying, "tcp", addr)
			cancel()
			if err != nil {
				continue
			}
			_ = c.Close()
			return shell.WithHint(coded.Errorf("", "%w: node %d is declared dead, but a service answers at its address %s",
				salvage.ErrMayLive, node, addr), "if that node runs, its data is not lost: stop it and inspect its "+
				"directory; if another service uses the address now, pass --no-probe")
		}
	}
	return nil
}

// readJSON reads a file written by `recover`; what describes the expected contents.
func readJSON(name string, to any, what string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%s is not a valid %s: %w", name, what, err)
	}
	return nil
}

// writePlan writes the plan durably to a new file.
func writePlan(name string, plan *salvage.Plan) error {
	text, err := json.MarshalIndent(plan, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s exists, and is not overwritten: choose another --out", name)
	case err != nil:
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

// plannedJSON is the plan for a tablet, in JSON.
type plannedJSON struct {
	Tablet uint64 `json:"tablet"`
	shell.RangeOut
	Action      string    `json:"action"` // keep, recover or create
	Node        uint64    `json:"node,omitempty"`
	Lost        []uint64  `json:"lost,omitempty"`        // voters that are dead
	After       uint64    `json:"after,omitempty"`       // index of the surviving log's last entry
	Uncommitted uint64    `json:"uncommitted,omitempty"` // kept entries that are not known to be committed
	Newest      time.Time `json:"newest,omitzero"`       // time of the replica's newest write
}

// print lists the action on each tablet and the possible losses.
func (p *planning) print(out *shell.Printer, plan *salvage.Plan) error {
	list := out.Listing("TABLET, FROM, BEFORE, ACTION, NODE, LAST ENTRY, MAYBE UNCOMMITTED, NEWEST WRITE", 0, 5, 6)
	lost, created := 0, 0
	for _, t := range plan.Tablets {
		v := &plannedJSON{
			Tablet: t.Tablet, RangeOut: shell.NewRangeOut(t.Descriptor.TabletDescriptor, nil), Action: t.Action,
		}
		from, before := v.Text()
		line := []any{t.Tablet, from, before, t.Action}
		switch t.Action {
		case salvage.Keep:
			line = append(line, "-", "-", "-", "-")
		case salvage.Create:
			created++
			v.Node = t.Node
			line = append(line, t.Node, "-", "-", "ALL ROWS ARE LOST")
		default:
			lost++
			v.Node, v.Lost, v.After, v.Uncommitted = t.Node, t.Lost, t.Index-1, t.Uncommitted
			newest := "none"
			if t.Newest > 0 {
				v.Newest = time.UnixMilli(mvcc.Timestamp(t.Newest).Millis()).UTC()
				newest = v.Newest.Format(time.RFC3339)
			}
			line = append(line, t.Node, v.After, v.Uncommitted, newest)
		}
		list.Add(v, line...)
	}
	if err := list.End(); err != nil {
		return err
	}
	out.Note("%d of %d tablets continue from one replica each: writes that only dead nodes acknowledged, "+
		"after these entries, are lost", lost, len(plan.Tablets))
	if created > 0 {
		out.Note("%d tablets have lost all of their rows and start empty", created)
	}
	out.Note("wrote plan %s to %s; apply it to the directories of nodes %d before starting any of them",
		plan.ID, p.out, plan.Nodes())
	return nil
}

func recoverApply(d *shell.Deps) *cobra.Command {
	f := &dirFlags{}
	cmd := &cobra.Command{
		Use:   "apply PLAN",
		Short: "Apply a plan to a stopped node's directory",
		Long: `Apply a plan to the directory of one of the nodes that it was made from. The node must not have
run since it was inspected. After an interrupted apply the node does not start; the same command
completes it, and may be repeated.

Apply the plan to every directory before any node is started. Dead nodes are forgotten: the
cluster refuses their directories.`,
		Example: "recover apply plan.json --dir /var/lib/percolator",
	}
	f.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		plan := &salvage.Plan{}
		if err := readJSON(args[0], plan, "plan, as `recover plan` writes it"); err != nil {
			return err
		}
		err := f.open(cmd, func(st *store.Store) error { return salvage.Apply(st, plan, shell.WhoAmI()) })
		if errors.Is(err, salvage.ErrApplied) {
			return d.Out.Done(nil, "plan %s was already applied to %s", plan.ID, f.dir)
		}
		return d.Out.Done(err, "applied plan %s to %s; once it has been applied to the directories of all nodes %d, start "+
			"them, and run `recover verify`", plan.ID, f.dir, plan.Nodes())
	}
	return d.WithOutput(cmd)
}
