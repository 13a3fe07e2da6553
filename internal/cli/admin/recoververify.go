package admin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/inspectcmd"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
)

// recoverVerify checks a recovered cluster and resolves the locks that the recovery left.
func recoverVerify(d *shell.Deps) *cobra.Command {
	return d.WithClient(&cobra.Command{
		Use:   "verify",
		Short: "Verify a recovered cluster and end the recovery",
		Long: `Verify a cluster after the loss of a quorum: compare all replicas, check that timestamps are
new, resolve the locks that are left as every reader would, and count the pending notifications.
On success the recovery is recorded as verified, and doctor no longer names it. The exit code is
1 otherwise.

It cannot find a transaction of which one tablet has lost its part while another has committed
its own. Compare with what the applications know.`,
		Example: "recover verify\nrecover verify -o json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return d.Conn.RunLong(cmd, verifyRecovery) },
	})
}

// recoveredJSON sums up the verification of a recovery, in JSON.
type recoveredJSON struct {
	Plan       string `json:"plan"`
	Committed  int    `json:"locks_committed"`   // locks that were rolled forward
	RolledBack int    `json:"locks_rolled_back"` // primaries and secondaries, Orphans included
	// Orphans are the rolled-back secondaries whose primary had no lock when the verification
	// began.
	Orphans int    `json:"locks_without_primary"`
	Pending uint64 `json:"notifications_pending"`
	Parked  uint64 `json:"notifications_parked"`
}

// verifyRecovery verifies the cluster and ends all of its recoveries.
func verifyRecovery(ctx context.Context, s *shell.Session) error {
	status, err := s.Admin.ClusterStatus(ctx, &pb.ClusterStatusRequest{})
	if err != nil {
		return err
	}
	if len(status.Recoveries) == 0 {
		return s.Out.Done(nil, "no recovery is unverified")
	}
	now, err := s.Client.Timestamp(ctx)
	if err != nil {
		return err
	}
	for _, r := range status.Recoveries {
		if uint64(now) <= r.HighestTs {
			return fmt.Errorf("the oracle's timestamp %d is not above %d, which was granted before the loss: "+
				"stop all clients", now, r.HighestTs)
		}
	}
	found := &recoveredJSON{}
	for _, o := range status.Observers {
		found.Pending, found.Parked = found.Pending+o.GetNotifications(), found.Parked+o.GetParked()
	}
	if err := found.locks(ctx, s); err != nil {
		return err
	}
	if err := inspectcmd.CompareReplicas(ctx, s); err != nil {
		return err
	}
	for _, r := range status.Recoveries {
		if _, err := s.Admin.FinishRecovery(ctx, &pb.FinishRecoveryRequest{Plan: r.Plan}); err != nil {
			return err
		}
		found.Plan = r.Plan
		if err := s.Out.Answer(found, "recovery %s is verified: timestamps are new, replicas equal; %d locks were "+
			"rolled forward, %d rolled back, %d of them secondaries without a primary; %d notifications wait, %d are "+
			"parked", found.Plan, found.Committed, found.RolledBack, found.Orphans, found.Pending, found.Parked); err != nil {
			return err
		}
	}
	return nil
}

// locks resolves all locks and counts the outcomes.
func (found *recoveredJSON) locks(ctx context.Context, s *shell.Session) error {
	names, catalogue, err := s.Schema(ctx)
	if err != nil {
		return err
	}
	tables, _ := names.Chosen(nil)
	primaries := map[uint64]bool{} // transactions whose primary has its lock
	for e, err := range storedLocks(ctx, s, catalogue, tables) {
		if err != nil {
			return err
		}
		if inspect.SameCell(e.Cell, lockOf(e).GetPrimary()) {
			primaries[lockOf(e).GetStartTs()] = true
		}
	}
	v := &resolver{all: true, Session: s, settled: func(out *resolvedJSON) {
		switch out.Outcome {
		case "committed":
			found.Committed++
		case "rolled_back":
			found.RolledBack++
			if !primaries[out.StartTS] {
				found.Orphans++
			}
		}
	}}
	return v.run(ctx, nil)
}
