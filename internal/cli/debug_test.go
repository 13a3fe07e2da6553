package cli

import (
	"archive/zip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// One node is down, and one is unreachable from here: the file says so and contains the rest.
func TestDebugZip(t *testing.T) {
	cluster := bankCluster()
	cluster.whole = &pb.ClusterStatusResponse{Nodes: []*pb.NodeReport{
		{Node: &pb.Node{NodeId: 1, Listen: "127.0.0.1:7800", Alive: true}},
		{Node: &pb.Node{NodeId: 2, Listen: "127.0.0.1:7900", Alive: true}},
		{Node: &pb.Node{NodeId: 3, Listen: "127.0.0.1:8000"}},
	}}
	name := filepath.Join(t.TempDir(), "out.zip")
	if err := os.WriteFile(name+".partial", nil, 0o644); err != nil { // of an earlier run
		t.Fatal(err)
	}
	var dialed []string
	var stdout, stderr strings.Builder
	app := &shell.App{
		Name: "percolator", Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr,
		Connect: func(_ context.Context, addrs []string, _ rpc.ClientConfig) (txn.Transport, error) {
			dialed = append(dialed, addrs...)
			if addrs[0] == "127.0.0.1:7900" {
				return nil, errors.New("no way there")
			}
			return cluster, nil
		},
	}
	if code := Run(t.Context(), app, []string{"debug", "zip", name}); code != shell.ExitDone {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	if want := []string{"127.0.0.1:7800", "127.0.0.1:7800", "127.0.0.1:7900"}; !slices.Equal(dialed, want) {
		t.Errorf("dialed %q, want %q", dialed, want)
	}
	files := unzip(t, name)
	for _, file := range []string{
		"cluster.json", "policy.json", "tables.json", "nodes/1/status.json", "nodes/1/build.txt",
		"nodes/1/metrics.txt", "nodes/1/goroutines.txt", "nodes/1/heap.pprof", "nodes/1/cpu.pprof",
	} {
		if files[file] == "" {
			t.Errorf("%s is missing or empty", file)
		}
	}
	if got := files["errors.txt"]; !strings.Contains(got, "nodes/2: no way there") ||
		!strings.Contains(got, "node 3 is not running") {
		t.Errorf("errors.txt has %q", got)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want it readable by its owner alone", info.Mode(), err)
	}
	if code := Run(t.Context(), app, []string{"debug", "zip", name}); code != shell.ExitFailed {
		t.Errorf("over a file that exists: exit code %d", code)
	}
	if code := Run(t.Context(), app, []string{"debug", "zip", "x", "--cpu", "1500ms"}); code != shell.ExitUsage {
		t.Errorf("1.5 s of profile: exit code %d", code)
	}
}

// TestDebugZipHidesGranted: data of a table with grants is in the file on request only.
func TestDebugZipHidesGranted(t *testing.T) {
	cluster := bankCluster()
	cluster.whole = &pb.ClusterStatusResponse{Nodes: []*pb.NodeReport{{
		Node: &pb.Node{NodeId: 1, Listen: "127.0.0.1:7800"},
		Status: &pb.NodeStatusResponse{Tablets: []*pb.StatusResponse{{
			Tablet:  &pb.TabletDescriptor{TabletId: 7, StartTable: 77, StartRow: []byte("SECRET"), EndTable: 78},
			LoadKey: []byte("SECRET"),
		}}},
	}}}
	cluster.policy = &pb.Policy{Grants: []*pb.Grant{{Table: 77, TableName: "SECRET", Name: "ann", Role: "reader"}}}
	app := &shell.App{
		Name: "percolator", Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard,
		Connect: func(context.Context, []string, rpc.ClientConfig) (txn.Transport, error) { return cluster, nil },
	}
	for _, granted := range []bool{false, true} {
		name := filepath.Join(t.TempDir(), "out.zip")
		args := []string{"debug", "zip", name}
		if granted {
			args = append(args, "--granted")
		}
		if code := Run(t.Context(), app, args); code != shell.ExitDone {
			t.Fatalf("exit code %d", code)
		}
		for file, text := range unzip(t, name) {
			if strings.Contains(text, "SECRET") && !granted {
				t.Errorf("HIDDEN-SHOWN: %s: %s", file, text)
			}
			if file == "cluster.json" && granted && !strings.Contains(text, "SECRET") {
				t.Errorf("--granted leaves it out: %s", text)
			}
		}
	}
}

// A failed run leaves no file.
func TestDebugZipCutShort(t *testing.T) {
	cluster := bankCluster()
	cluster.whole = &pb.ClusterStatusResponse{}
	dir := t.TempDir()
	cluster.fail = &txn.ServerError{Code: pb.Error_CODE_INVALID, Message: "no"}
	app := &shell.App{
		Name: "percolator", Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard,
		Connect: func(context.Context, []string, rpc.ClientConfig) (txn.Transport, error) {
			return cluster, nil
		},
	}
	if code := Run(t.Context(), app, []string{"debug", "zip", filepath.Join(dir, "x")}); code != shell.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v left behind, %v", left, err)
	}
}

func unzip(t *testing.T, name string) map[string]string {
	t.Helper()
	r, err := zip.OpenReader(name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	files := map[string]string{}
	for _, f := range r.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = string(text)
	}
	return files
}

func TestLogLevel(t *testing.T) {
	cluster := bankCluster()
	code, stdout, stderr := runApp(t, cluster, nil, "node", "log-level", "debug")
	if code != shell.ExitDone || !strings.Contains(stdout, "log level is now debug, was info") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	code, _, stderr = runApp(t, cluster, nil, "node", "log-level", "loud")
	if code != shell.ExitUsage || !strings.Contains(stderr, "debug, info, warn, error") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
