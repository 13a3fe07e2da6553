package inspectcmd

import (
	"bytes"
	"strings"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
)

// TestDoctorNamesTheProgram: a node's advice names the program that prints it.
func TestDoctorNamesTheProgram(t *testing.T) {
	var out bytes.Buffer
	err := diagnose(&shell.Printer{Stdout: &out, Commands: inspect.Commands{Program: "roster"}}, &pb.ClusterStatusResponse{
		Findings: []*pb.Finding{{Remedy: "Wait (`percolator node ls`): percolator mends it."}},
	}, nil)
	if err != nil || !strings.Contains(out.String(), " Wait (`roster node ls`): percolator mends it.\n") {
		t.Errorf("printed %q, %v", out.String(), err)
	}
}
