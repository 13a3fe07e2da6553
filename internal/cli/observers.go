package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// observerCommand holds the commands about observers.
func (r *run) observerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the observers: the cluster's catalogue, and what the answering node did for them since it began",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return r.talk(cmd, r.observers)
		},
	}
	return group("observer", "List observers", r.withClient(cmd))
}

// observerJSON is an observer in JSON. Counters are the answering node's, all zero if it does not link the observer.
type observerJSON struct {
	Name      string    `json:"name"`
	Table     string    `json:"table"`
	Column    jsonBytes `json:"column"`
	Weak      bool      `json:"weak"`
	Linked    bool      `json:"linked"`
	Retired   bool      `json:"retired,omitempty"`
	Runs      uint64    `json:"runs"`
	Commits   uint64    `json:"commits"`
	Conflicts uint64    `json:"conflicts"`
	Failures  uint64    `json:"failures"`
	Parked    uint64    `json:"parked"`
	Skipped   uint64    `json:"skipped"`
	Running   uint32    `json:"running"`
}

// observers asks meta who there is, and the node what it did for them: the rest of a cluster's nodes are asked one by one.
func (r *run) observers(ctx context.Context, s *session) error {
	catalogue, err := s.transport.Catalogue(ctx)
	if err != nil {
		return err
	}
	status, err := s.transport.NodeStatus(ctx)
	if err != nil {
		return err
	}
	var g grid
	g.numbers(5, 6, 7, 8, 9, 10)
	g.add("OBSERVER", "TABLE", "COLUMN", "KIND", "LINKED HERE", "RUNS", "COMMITS", "CONFLICTS", "FAILURES", "PARKED", "RUNNING")
	for _, o := range mergeObservers(catalogue, status) {
		if r.output == outputJSON {
			if err := r.object(o); err != nil {
				return err
			}
			continue
		}
		kind, linked := "strong", "no"
		if o.Weak {
			kind = "weak"
		}
		if o.Retired {
			kind += ", retired"
		}
		if o.Linked {
			linked = "yes"
		}
		g.add(printable(o.Name), printable(o.Table), printable(string(o.Column)), kind, linked, fmt.Sprint(o.Runs), fmt.Sprint(o.Commits),
			fmt.Sprint(o.Conflicts), fmt.Sprint(o.Failures), fmt.Sprint(o.Parked), fmt.Sprint(o.Running))
	}
	return r.finish(&g)
}

// mergeObservers joins the cluster's catalogue with the node's counters, by name.
func mergeObservers(catalogue *pb.Catalogue, status *pb.NodeStatusResponse) []observerJSON {
	here := map[string]*pb.ObserverStatus{}
	for _, o := range status.GetObservers() {
		here[o.Name] = o
	}
	var list []observerJSON
	for _, o := range catalogue.GetObservers() {
		n := here[o.Name]
		list = append(list, observerJSON{
			Name: o.Name, Table: o.TableName, Column: jsonBytes(o.Column), Weak: o.Weak, Linked: n != nil, Retired: o.Retired,
			Runs: n.GetRuns(), Commits: n.GetCommits(), Conflicts: n.GetConflicts(), Failures: n.GetFailures(),
			Parked: n.GetParked(), Skipped: n.GetSkipped(), Running: n.GetRunning(),
		})
	}
	slices.SortFunc(list, func(a, b observerJSON) int { return strings.Compare(a.Name, b.Name) })
	return list
}
