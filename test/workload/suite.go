package workload

import (
	"context"

	percolator "github.com/percolator-go/percolator"
)

// Workload is a workload that needs only a repository with its table (Prepare).
type Workload struct {
	Name string
	Run  func(ctx context.Context, db *percolator.DB, l Load) error
}

// All returns all workloads. The bank's accounts must have been written (OpenBank).
func All() []Workload {
	return []Workload{
		{"bank", Bank},
		{"list append", ListAppend},
		{"register", Register},
		{"set", Set},
		{"monotonic", Monotonic},
		{"oracle", Oracle},
		{"lost update", LostUpdate},
		{"long fork", LongFork},
		{"read your writes", ReadYourWrites},
		{"stable snapshots", StableSnapshots},
		{"on call locked", OnCall("on call locked", [2]Guard{(*percolator.Tx).Lock, Unguarded})},
		{"on call validated", OnCall("on call validated",
			[2]Guard{(*percolator.Tx).Validate, (*percolator.Tx).Validate})},
	}
}
