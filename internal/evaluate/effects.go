package evaluate

import (
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// effects reports the unfinished effects of commits up to a timestamp (docs/adr/0042):
// notifications and intents whose origin is one of them, and locks on observed columns, which
// may become notifications.
func effects(v View, req *pb.PendingRequest) *pb.EffectsResponse {
	asked, out := req.Effects, &pb.EffectsResponse{}
	until := mvcc.Timestamp(asked.Until)
	out.Written, out.Hidden, out.Mark = v.Noted(asked)
	var tables []mvcc.TableID // of observed columns
	for _, o := range v.Observers() {
		if len(asked.Tables) > 0 && !slices.Contains(asked.Tables, o.Table) {
			continue
		}
		if table := mvcc.TableID(o.Table); !slices.Contains(tables, table) {
			tables = append(tables, table)
		}
		p := v.Early(o, until)
		idle := o.Retired || o.Paused || slices.Contains(req.GetUnlinked(), o.Name)
		if !idle && p.Notifications+p.Intents > 0 {
			out.Waiting = true
		}
		if p.Parked > 0 || (idle && p.Notifications+p.Intents > 0) {
			out.Held = append(out.Held, p)
		}
	}
	out.Waiting = out.Waiting || slices.ContainsFunc(tables, func(t mvcc.TableID) bool {
		return undecided(v, t, until, asked.Shown)
	})
	if out.Waiting {
		out.Held = nil
	}
	return out
}

// undecided reports whether an observed column of the table has a write's lock whose start
// timestamp or, if lower, origin is at most until. Locks without a write notify no observer. With
// reserved, reservations with a commit timestamp of at most until count too, for callers that must
// not miss a commit that is about to be answered; callers that wait for a commit's effects already
// have its answer.
func undecided(v View, table mvcc.TableID, until mvcc.Timestamp, reserved bool) bool {
	span, ok := wire.Clip(v.Descriptor(), mvcc.Span{Table: table})
	if !ok {
		return false
	}
	for c, l := range v.Locks(span, false) {
		if v.Observed(c.Table, c.Column).How == mvcc.NotObserved || c.Class != mvcc.ClassData ||
			l.Kind == mvcc.KindLock {
			continue
		}
		if l.Token == 0 && l.From() <= until || l.Token != 0 && reserved && l.CommitTS <= until {
			return true
		}
	}
	return false
}
