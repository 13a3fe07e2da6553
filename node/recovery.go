package node

import (
	"context"
	"time"

	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// recoveryPause is the time between two attempts to reach meta.
const recoveryPause = time.Second

// noteRecovery records in meta the recovery that was applied to this node's directory, if any, and
// writes it to the audit log. It repeats both, also after a crash, until the directory's record
// says that they are done, or ctx ends.
func (n *Node) noteRecovery(ctx context.Context) {
	r := n.joining.self.Recovery()
	if r.Plan == "" || r.Noted {
		return
	}
	note := r.Message()
	for {
		err := n.meta.Recoveries.Note(ctx, note)
		if err == nil {
			rpc.AuditOffline(ctx, n.cfg.Logger, "RecoverApply", r.By, note)
			err = n.joining.self.RecoveryNoted()
		}
		if err == nil {
			return
		}
		n.cfg.Logger.Warn("cannot record the recovery of this node's directory in meta, will retry", "error", err)
		if txn.Sleep(ctx, recoveryPause) != nil {
			return
		}
	}
}
