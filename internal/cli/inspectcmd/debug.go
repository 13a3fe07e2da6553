package inspectcmd

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/pbjson"
	"github.com/percolator-go/percolator/internal/rpc"
)

// `debug zip` gathers what is needed to examine a cluster from afar. It asks each node
// directly, one after the other, at the address that the node advertises.

// DebugCommand groups the commands for developers.
func DebugCommand(d *shell.Deps) *cobra.Command {
	return shell.Group("debug", "Collect diagnostics for developers", "debug zip percolator.zip",
		debugZip(d))
}

func debugZip(d *shell.Deps) *cobra.Command {
	var cpu time.Duration
	var granted bool
	cmd := &cobra.Command{
		Use:   "zip FILE",
		Short: "Write statuses, metrics, stacks and profiles of all nodes into a zip file",
		Long: `Write diagnostics to a zip file: the findings of doctor,
the cluster's policy, tables and observers, and of each node its status, metrics, goroutines, memory
and CPU profile, build and modules. Failures are recorded in errors.txt.

Values of cells, keys of certificates, command lines and the environment are left out. Tables with
grants are left out too, except for the names of their observers in the metrics; --granted includes
them. Of other tables the file has the rows at which tablets begin and those on which observers fail.`,
		Example: "debug zip percolator.zip\ndebug zip percolator.zip --certs ann --cpu 10s",
	}
	cmd.Flags().DurationVar(&cpu, "cpu", 5*time.Second,
		"how long each node's CPU profile runs, in whole seconds up to a minute; 0: none")
	cmd.Flags().BoolVar(&granted, "granted", false,
		"include tables with grants: their names, split keys, rows and observers")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cpu < 0 || cpu > time.Minute || cpu%time.Second != 0 {
			return shell.Usagef(cmd, "--cpu %v: give whole seconds up to a minute", cpu)
		}
		return d.Conn.RunLong(cmd, func(ctx context.Context, s *shell.Session) error {
			cfg, err := d.Conn.Config(cmd)
			if err != nil {
				return err
			}
			g := &gathering{app: d.App, cfg: cfg, timeout: d.Conn.Timeout, cpu: cpu, granted: granted}
			return g.writeFile(ctx, s, d.Out, args[0])
		})
	}
	return d.WithClient(cmd)
}

// gathering is one run of debug zip.
type gathering struct {
	app     *shell.App
	cfg     rpc.ClientConfig // how nodes are reached
	timeout time.Duration    // of each request
	cpu     time.Duration
	granted bool     // tables with grants are included
	view    rpc.View // hides tables with grants from the file, unless granted
	zip     *zip.Writer
	errors  []string
	files   int
}

// writeFile writes name.partial and renames it at the end, so that an interrupted run
// leaves no file that looks complete. Only its owner can read it.
func (g *gathering) writeFile(ctx context.Context, s *shell.Session, out *shell.Printer, name string) error {
	if shell.Exists(name) {
		return fmt.Errorf("%s exists; give another name", inspect.Printable(name))
	}
	// Remove the partial file of an earlier run: it may be readable by others, or be a link.
	partial := name + ".partial"
	if err := os.Remove(partial); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(partial, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	g.zip = zip.NewWriter(f)
	err = errors.Join(g.cluster(ctx, s, out), g.add("errors.txt",
		[]byte(strings.Join(append(g.errors, ""), "\n"))), g.zip.Close(), f.Close())
	if err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	return out.Done(os.Rename(partial, name), "%s: %d files; %d requests failed (errors.txt)", inspect.Printable(name),
		g.files, len(g.errors))
}

// cluster gathers what one node knows of all, then asks each live one. It fails without the list
// of nodes and, unless tables with grants are included, without the policy.
func (g *gathering) cluster(ctx context.Context, s *shell.Session, out *shell.Printer) error {
	asking, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	status, err := s.Admin.ClusterStatus(asking, &pb.ClusterStatusRequest{})
	if err != nil {
		return err
	}
	policy, err := s.Admin.ClusterPolicy(asking, &pb.ClusterPolicyRequest{})
	// The recipient of the file may have no grants.
	switch {
	case g.granted:
	case err != nil:
		return coded.Errorf("", "cannot list the tables with grants (--granted includes all tables): %w", err)
	default:
		g.view = rpc.ViewWithoutGrants(policy.GetPolicy())
	}
	if err := errors.Join(g.message("cluster.json", status, nil),
		g.message("policy.json", policy, err)); err != nil {
		return err
	}
	tables, err := s.Transport.Tables(asking)
	if err := g.message("tables.json", &pb.TablesResponse{Tables: tables}, err); err != nil {
		return err
	}
	for _, r := range status.GetNodes() {
		n := r.GetNode()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !n.GetAlive() {
			g.errors = append(g.errors,
				fmt.Sprintf("node %d is not running, or not reached", n.GetNodeId()))
			continue
		}
		out.Note("node %d at %s", n.GetNodeId(), n.GetListen())
		if err := g.node(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// node asks one node. It fails only if the file can't be written; requests that fail are recorded.
func (g *gathering) node(ctx context.Context, n *pb.Node) error {
	dir := fmt.Sprintf("nodes/%d", n.GetNodeId())
	dialing, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	transport, err := g.app.Connect(dialing, []string{n.GetListen()}, g.cfg)
	if err != nil {
		g.errors = append(g.errors, fmt.Sprintf("%s: %v", dir, err))
		return nil
	}
	admin := pb.NewAdminClient(transport.AdminConn())
	asking, cancelStatus := context.WithTimeout(ctx, g.timeout)
	defer cancelStatus()
	status, err := transport.NodeStatus(asking)
	failed := g.message(path.Join(dir, "status.json"), status, err)
	for _, part := range []struct {
		file    string
		kind    pb.DescribeProcessRequest_Kind
		seconds time.Duration
	}{
		{"build.txt", pb.DescribeProcessRequest_KIND_BUILD, 0},
		{"metrics.txt", pb.DescribeProcessRequest_KIND_METRICS, 0},
		{"goroutines.txt", pb.DescribeProcessRequest_KIND_GOROUTINES, 0},
		{"heap.pprof", pb.DescribeProcessRequest_KIND_HEAP, 0},
		{"cpu.pprof", pb.DescribeProcessRequest_KIND_CPU, g.cpu},
	} {
		if failed != nil || part.kind == pb.DescribeProcessRequest_KIND_CPU && g.cpu == 0 {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, g.timeout+part.seconds)
		answer, err := admin.DescribeProcess(asking, &pb.DescribeProcessRequest{
			Kind: part.kind, Seconds: uint32(part.seconds.Seconds()),
		})
		cancel()
		if err != nil {
			g.errors = append(g.errors, fmt.Sprintf("%s/%s: %v", dir, part.file, err))
			continue
		}
		failed = g.add(path.Join(dir, part.file), answer.GetContent())
	}
	return errors.Join(failed, transport.Close())
}

// message adds a message as JSON, or records why there is none.
func (g *gathering) message(file string, m proto.Message, err error) error {
	if err != nil {
		g.errors = append(g.errors, fmt.Sprintf("%s: %v", file, err))
		return nil
	}
	text, err := pbjson.Marshal(g.view.Narrow(m))
	if err != nil {
		return err
	}
	return g.add(file, text)
}

func (g *gathering) add(file string, content []byte) error {
	w, err := g.zip.CreateHeader(&zip.FileHeader{
		Name: file, Method: zip.Deflate, Modified: time.Now(),
	})
	if err == nil {
		_, err = w.Write(content)
		g.files++
	}
	return err
}
