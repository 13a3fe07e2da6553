package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// TestWithoutMeta: while meta has no quorum, a node's own knowledge is shown with its age and a
// list of missing parts.
func TestWithoutMeta(t *testing.T) {
	for _, tc := range []struct {
		args   []string
		stdout []string
		stderr []string
	}{
		{[]string{"node", "ls"}, []string{"127.0.0.1:7800", "unknown   away"},
			[]string{"meta does not answer (no quorum)", "the node table 1m5s ago"}},
		{[]string{"status"}, []string{
			"DOES NOT ANSWER, the last time was 1m5s ago: no quorum; no leader is known",
			"3, leader of 1, 2 locks; 1 WITHOUT A LEADER, the first for 30s",
		}, []string{"the node table 1m5s ago"}},
		{[]string{"tablet", "ls"}, []string{"table 16/m", "none"},
			[]string{"does not answer: percolator: no quorum"}},
	} {
		cluster := bankCluster()
		cluster.noMeta = "no quorum"
		cluster.nodes = append(cluster.nodes, &pb.Node{NodeId: 7})
		cluster.status.Tablets = append(cluster.status.Tablets,
			&pb.StatusResponse{Tablet: &pb.TabletDescriptor{TabletId: 3}, LeaderlessMs: 30_000})
		cluster.status.Tablets[0].Leader = false
		cluster.status.Meta = &pb.MetaSight{AnsweredAgoMs: 65_000, Error: "no quorum"}
		code, stdout, stderr := runApp(t, cluster, nil, tc.args...)
		if code != shell.ExitDone {
			t.Errorf("%v: exit code %d", tc.args, code)
		}
		for _, want := range tc.stdout {
			if !strings.Contains(stdout, want) {
				t.Errorf("%v: no %q in\n%s", tc.args, want, stdout)
			}
		}
		for _, want := range tc.stderr {
			if !strings.Contains(stderr, want) {
				t.Errorf("%v: no %q in\n%s", tc.args, want, stderr)
			}
		}
	}
}

// TestAdviceOfRefusals: after an answer from a node the advice is not to start one, and a full disk
// is named as such.
func TestAdviceOfRefusals(t *testing.T) {
	full := &txn.ServerError{Code: pb.Error_CODE_DISK_FULL, Message: "the disk is full"}
	for _, tc := range []struct {
		err       error
		connected bool
		survives  int32
		want      string
	}{
		{fmt.Errorf("commit: %w", percolator.ErrDiskFull), true, 0, "free or add on that node what the error names"},
		{full, true, 0, "free or add on that node what the error names"},
		{fmt.Errorf("commit: %w", percolator.ErrUnavailable), true, -1,
			"the node runs, but not enough of the nodes"},
		{context.DeadlineExceeded, true, -1, "the node runs, but not enough of the nodes"},
		{fmt.Errorf("commit: %w", percolator.ErrUnavailable), true, 0, "not answered within --timeout"},
		{context.DeadlineExceeded, true, 1, "not answered within --timeout"},
		{fmt.Errorf("dial: %w", percolator.ErrUnavailable), false, 0, "start a node"},
		{
			coded.Mark(fmt.Errorf("dial: %w: the node is starting, or waiting to join a cluster",
				percolator.ErrUnavailable), txn.ErrStarting),
			false, 0, "waits for other nodes",
		},
	} {
		cluster := bankCluster()
		app := &shell.App{
			Name: "percolator", Stdin: strings.NewReader(""), Stdout: &strings.Builder{},
			Stderr: &strings.Builder{},
			Connect: func(context.Context, []string, rpc.ClientConfig) (txn.Transport, error) {
				if tc.connected {
					cluster.fail, cluster.whole = tc.err, &pb.ClusterStatusResponse{Survives: tc.survives}
					return cluster, nil
				}
				return nil, tc.err
			},
		}
		code := Run(t.Context(), app, []string{"table", "create", "t", "--timeout", "200ms"})
		advice := app.Stderr.(*strings.Builder).String()
		if code != shell.ExitUnavailable || !strings.Contains(advice, tc.want) ||
			errors.Is(tc.err, percolator.ErrDiskFull) && strings.Contains(advice, "start a node") {
			t.Errorf("%v: exit code %d, no %q in %s", tc.err, code, tc.want, advice)
		}
	}
}
