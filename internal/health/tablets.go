package health

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Findings about tablets: quorums, leaders, placement, locks and history.

// many reports that the number of tablets approaches the policy's limit.
func (e *examination) many() {
	most := uint64(0)
	for _, r := range e.status.GetNodes() {
		most = max(most, r.GetStatus().GetMaxTablets())
	}
	there := 0
	for _, d := range e.tablets {
		if mvcc.TableID(d.GetStartTable()) >= mvcc.FirstUserTable {
			there++
		}
	}
	if most == 0 || float64(there) < manyTablets*float64(most) {
		return
	}
	e.add(warning, TabletsMany, "tablets", fmt.Sprintf(
		"There are %s, and the policy allows %d: at the limit, tables can be neither created nor split.",
		plural(there, "tablet"), most),
		"Drop unused tables, or raise the limit: `percolator cluster set split-max-tablets=N`. "+
			"client-max-tables and client-max-tablets limit each client.")
}

// quorums reports tablets without a quorum of replicas on nodes that answer, and returns the number
// of further nodes that may fail; see Examine.
func (e *examination) quorums() int32 {
	if len(e.tablets) == 0 {
		return 0 // no tablet is known yet
	}
	up, names := map[uint64]bool{}, map[uint64]string{}
	for _, r := range e.status.GetNodes() {
		up[r.GetNode().GetNodeId()] = r.GetStatus() != nil
		names[r.GetNode().GetNodeId()] = nodeName(r.GetNode())
	}
	stale, unready := e.badReplicas()
	var lost []uint64
	wanted := map[uint64]bool{} // nodes whose return would restore a quorum
	least := len(e.status.GetNodes())
	for _, id := range slices.Sorted(maps.Keys(e.tablets)) {
		voters := e.tablets[id].GetReplicas()
		if spare(voters, up, stale[id]) >= 0 {
			least = min(least, max(spare(voters, up, unready[id]), 0))
			continue
		}
		least = -1
		lost = append(lost, id)
		for _, r := range e.tablets[id].GetReplicas() {
			if !r.GetLearner() && !up[r.GetNodeId()] {
				wanted[r.GetNodeId()] = true
			}
		}
	}
	if len(lost) > 0 {
		var nodes []string
		for _, id := range slices.Sorted(maps.Keys(wanted)) {
			nodes = append(nodes, cmp.Or(names[id], fmt.Sprintf("node %d", id)))
		}
		remedy := "Start these nodes again with their directories: " + join(nodes) + "."
		if len(nodes) == 0 {
			remedy = "Too many of their replicas are stale: `percolator recover plan` shows what is left of them."
		}
		e.add(critical, NoQuorum, "tablets "+list(lost),
			fmt.Sprintf("%s of %d without a quorum: they serve neither reads nor writes until enough of their nodes are back.",
				plural(len(lost), "tablet"), len(e.tablets)),
			remedy)
	}
	if least == 0 {
		e.noSpare(len(up))
	}
	return int32(least)
}

// noSpare reports a cluster that serves now, but would not with one node fewer.
func (e *examination) noSpare(nodes int) {
	silent := func(r *pb.NodeReport) bool { return r.GetStatus() == nil }
	switch {
	case nodes < 3:
		start := "`percolator start --dir DIR --listen HOST:PORT --join %s --insecure`"
		if e.protected() {
			start = "`percolator start --dir DIR --listen HOST:PORT --join %s --certs CERTS`"
		}
		e.add(info, NoSpare, "cluster", "No node may fail: there are fewer than three.",
			"To survive the failure of a node, add nodes: "+
				fmt.Sprintf(start, e.anAddress())+".")
	case slices.ContainsFunc(e.status.GetNodes(), silent):
		e.add(warning, NoSpare, "cluster", "No further node may fail: some tablets have only just a quorum.",
			"Restart the nodes that are away, or wait until their replicas are recreated "+
				"(`percolator node ls`).")
	default:
		e.add(warning, NoSpare, "cluster",
			"No node may fail yet: all nodes answer, but some tablets have too few replicas that are up to date.",
			"Wait until replicas are added, a few seconds in a new cluster. If this persists, "+
				"compare the target number of replicas in `percolator cluster show`.")
	}
}

// protected reports whether nodes have certificates: a new one then needs them too.
func (e *examination) protected() bool {
	return slices.ContainsFunc(e.status.GetNodes(), func(r *pb.NodeReport) bool {
		return len(r.GetStatus().GetCertificates()) > 0
	})
}

// anAddress returns the address of a node that a new one may join.
func (e *examination) anAddress() string {
	for _, r := range e.status.GetNodes() {
		if host := hostOf(r.GetNode()); r.GetStatus() != nil && host != "HOST" {
			_, port, _ := net.SplitHostPort(r.GetNode().GetListen())
			return net.JoinHostPort(host, port)
		}
	}
	return "HOST:PORT"
}

// badReplicas returns, by tablet, the replicas that its leader reports as stale, which do not vote,
// and the replicas that could not replace another voter now: stale ones, inactive ones, those that
// wait for a snapshot and those that have received nothing. Tablets whose leader does not answer
// are missing.
func (e *examination) badReplicas() (stale, unready map[uint64]map[uint64]bool) {
	stale, unready = map[uint64]map[uint64]bool{}, map[uint64]map[uint64]bool{}
	note := func(of map[uint64]map[uint64]bool, tablet, replica uint64) {
		if of[tablet] == nil {
			of[tablet] = map[uint64]bool{}
		}
		of[tablet][replica] = true
	}
	for _, r := range e.status.GetNodes() {
		for _, t := range r.GetStatus().GetTablets() {
			for _, p := range t.GetReplicas() { // empty unless this replica leads
				tablet, replica := t.GetTablet().GetTabletId(), p.GetReplica().GetReplicaId()
				if p.GetStale() {
					note(stale, tablet, replica)
				}
				if p.GetStale() || !p.GetActive() || p.GetSnapshot() || p.GetMatch() == 0 {
					note(unready, tablet, replica)
				}
			}
		}
	}
	return stale, unready
}

// spare returns the number of further voters of a tablet that may fail; negative if it has no
// quorum. Replicas in bad do not count as live. During a configuration change both the old and the
// new configuration need a quorum.
func spare(replicas []*pb.Replica, up, bad map[uint64]bool) int {
	quorum := func(counts func(*pb.Replica) bool) int {
		voters, live := 0, 0
		for _, r := range replicas {
			if r.GetLearner() || !counts(r) {
				continue
			}
			if voters++; up[r.GetNodeId()] && !bad[r.GetReplicaId()] {
				live++
			}
		}
		return live - (voters/2 + 1)
	}
	return min(quorum(func(r *pb.Replica) bool { return !r.GetIncoming() }),
		quorum(func(r *pb.Replica) bool { return !r.GetOutgoing() }))
}

// leaders reports tablets without a leader although nodes with their replicas answer. It reports
// none if quorums has reported tablets without a quorum.
func (e *examination) leaders() {
	led, since := map[uint64]bool{}, map[uint64]time.Duration{}
	for _, r := range e.status.GetNodes() {
		for _, t := range r.GetStatus().GetTablets() {
			id := t.GetTablet().GetTabletId()
			if led[id] = led[id] || t.GetLeader(); !t.GetLeader() {
				since[id] = max(since[id], time.Duration(t.GetLeaderlessMs())*time.Millisecond)
			}
		}
	}
	var without []uint64
	var longest time.Duration
	for id, d := range since {
		if !led[id] && d >= leaderless {
			without, longest = append(without, id), max(longest, d)
		}
	}
	if len(without) == 0 || slices.ContainsFunc(e.findings, func(f *pb.Finding) bool {
		return f.Kind == NoQuorum
	}) {
		return
	}
	slices.Sort(without)
	e.add(critical, NoLeader, "tablets "+list(without),
		fmt.Sprintf("%s without a leader, for up to %s.", plural(len(without), "tablet"), inspect.Span(longest)),
		fmt.Sprintf("Nodes that answer clients may not reach each other: check `percolator tablet describe %d` and "+
			"the network on the port after that of --listen.", without[0]))
}

// meta reports nodes that get no answer from the meta tablet.
func (e *examination) meta() {
	var deaf []uint64
	why := ""
	for _, r := range e.status.GetNodes() {
		if m := r.GetStatus().GetMeta(); m.GetError() != "" {
			deaf, why = append(deaf, r.GetNode().GetNodeId()), m.GetError()
		}
	}
	if len(deaf) > 0 {
		e.add(critical, MetaSilent, "meta", fmt.Sprintf("The meta tablet does not answer nodes %s: %s.", list(deaf), why),
			"Without it no timestamps are issued: transactions wait. Restart the nodes that hold it "+
				"(`percolator tablet describe 1`).")
	}
}

func (e *examination) placement() {
	for _, r := range e.status.GetNodes() {
		for _, why := range r.GetStatus().GetPlacement().GetBlocked() {
			e.add(warning, PlacementBlocked, "placement", "Replicas are not on their target nodes: "+why+".",
				"See `percolator node ls` and `percolator tablet ls`; placement retries automatically.")
		}
	}
}

// history reports holds on old versions that are at least oldHold old, and those of backups. Only
// the node that leads meta knows them.
func (e *examination) history() {
	for _, r := range e.status.GetNodes() {
		h := r.GetStatus().GetHistory()
		for _, b := range h.GetBackupHolds() {
			e.backupHeld(b, time.Duration(h.MaxHoldMs)*time.Millisecond)
		}
		forBackup := slices.ContainsFunc(h.GetBackupHolds(), func(b *pb.BackupHold) bool {
			return b.At == h.OldestHold
		})
		if h.GetHolds() == 0 || h.GetOldestHold() == 0 || forBackup || e.since(h.OldestHold) < oldHold {
			continue
		}
		e.add(info, HistoryHeld, "history",
			fmt.Sprintf("A reader has held old versions for %s, so the data grows.", inspect.Span(e.since(h.GetOldestHold()))),
			"Look for a forgotten snapshot or export; its hold expires at collection-max-hold "+
				"(`percolator cluster show`).")
	}
}

// backupHeld reports history that is held for the next increment of a backup: that the hold has
// expired or soon will, that a disk is low on space, or, from oldHold on, only that it exists.
func (e *examination) backupHeld(b *pb.BackupHold, limit time.Duration) {
	age, waits := e.since(b.At), uint64(0)
	for _, r := range e.status.GetNodes() {
		for _, t := range r.GetStatus().GetTablets() {
			waits += t.GetGarbage()
		}
	}
	end := fmt.Sprintf("if no increment follows: `percolator backup release %s`.", pastableName(b.Backup))
	longer := fmt.Sprintf("`percolator cluster set collection-max-hold=%s`", 2*limit)
	text := fmt.Sprintf("History is held for %s: about %d old versions wait.", inspect.Span(age), waits)
	switch full := func(f *pb.Finding) bool { return f.Kind == DiskLow || f.Kind == WritesRefused }; {
	case age >= limit:
		e.add(warning, BackupHeld, "backup "+b.Backup,
			fmt.Sprintf("Its hold on history has expired: it is %s old, and collection-max-hold is %s.",
				inspect.Span(age), inspect.Span(limit)),
			"The next increment may be refused; make a full backup. To keep later increments possible: "+longer+
				", which is above the interval between two; or, "+end)
	case age >= limit-limit/10:
		e.add(warning, BackupHeld, "backup "+b.Backup,
			fmt.Sprintf("%s The hold expires in %s, by collection-max-hold.", text, inspect.Span(limit-age)),
			"Make the next increment now; or extend the hold, "+longer+"; or, "+end)
	case slices.ContainsFunc(e.findings, full):
		e.add(warning, BackupHeld, "backup "+b.Backup, text+" A disk is low on space.",
			"Make the next increment now; or, "+end)
	case age >= oldHold:
		e.add(info, BackupHeld, "backup "+b.Backup, text, "Nothing is wrong while increments follow; or, "+end)
	}
}

// restores reports tables whose restore has begun but not finished.
func (e *examination) restores() {
	for _, j := range e.status.GetJobs() {
		if j.GetKind() == "restore" && j.GetState() == "unfinished" {
			e.add(warning, RestoreUnfinished, j.GetSubject(),
				"Its restore is unfinished and no process continues it: the table cannot be opened.",
				fmt.Sprintf("Run the same `percolator restore LOCATION` again, which resumes it, or `percolator "+
					"table drop %s --yes`.", pastableName(strings.Join(j.GetTables(), ","))))
		}
	}
}

// recoveries reports unverified recoveries from a lost quorum.
func (e *examination) recoveries() {
	for _, r := range e.status.GetRecoveries() {
		e.add(warning, Unverified, "recovery "+r.GetPlan(),
			fmt.Sprintf("After a quorum was lost, the groups of tablets %s were recreated from one replica "+
				"each, without nodes %s: acknowledged writes may be missing.", list(r.GetTablets()),
				list(r.GetDead())),
			"Run `percolator recover verify`: it looks for inconsistencies that the loss has left and clears this finding.")
	}
}

// locks reports tablets with a lock that is at least oldLock old; its transaction may be alive.
func (e *examination) locks() {
	var tablets []uint64
	var oldest time.Duration
	for _, r := range e.status.GetNodes() {
		for _, t := range r.GetStatus().GetTablets() {
			if ts := t.GetOldestLockTs(); t.GetLeader() && ts > 0 && e.since(ts) >= oldLock {
				tablets, oldest = append(tablets, t.GetTablet().GetTabletId()), max(oldest, e.since(ts))
			}
		}
	}
	if len(tablets) == 0 {
		return
	}
	slices.Sort(tablets)
	e.add(warning, LockOld, "tablets "+list(slices.Compact(tablets)),
		fmt.Sprintf("The oldest lock is %s old.", inspect.Span(oldest)),
		"`percolator lock ls` shows its owner. If that process has ended: `percolator lock resolve --all`.")
}
