package health

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// Findings about nodes: liveness, disks, clocks, certificates and builds.

func (e *examination) node(r *pb.NodeReport) {
	n, name := r.GetNode(), nodeName(r.GetNode())
	switch {
	case n.GetState() == pb.NodeState_NODE_STATE_GONE:
		e.add(info, NodeAway, name, "It was away for so long that its replicas were recreated on other nodes.",
			fmt.Sprintf("If it will not come back: `percolator node forget %d --yes`.", n.NodeId))
		return
	case !n.GetAlive() && n.GetState() == pb.NodeState_NODE_STATE_DRAINED:
		return // drained: it may have been stopped for good
	case !n.GetAlive():
		e.add(warning, NodeAway, name, fmt.Sprintf("It is down or unreachable; it holds replicas of %s.",
			plural(len(e.on(n.GetNodeId())), "tablet")),
			"Start it again with its directory. After replace-dead-after (`percolator cluster show`) its replicas are "+
				"recreated on other nodes.")
		return
	case r.GetStatus() == nil:
		remedy := "It may be stopped or starved: check its process and its log. If it hangs, kill it (kill -9); " +
			"acknowledged writes are not lost."
		if r.GetCertificateRefused() {
			remedy = "It and the answering node do not accept each other's certificates: run `percolator cert show` on both to " +
				"see which one has expired, was revoked or is from another authority."
		}
		e.add(critical, NodeSilent, name, "It gossips but does not answer: "+r.GetError()+".", remedy)
		return
	case n.GetState() == pb.NodeState_NODE_STATE_UNSPECIFIED && e.status.GetNodesUnavailable() == "":
		e.add(warning, NodeUnregistered, name, "It gossips but is missing from the node table.",
			"If this persists, check its log: a node that was forgotten needs an empty directory.")
	}
	if n.GetBlocked() != "" {
		e.add(warning, DrainBlocked, name, "Its drain is blocked: "+n.GetBlocked()+".",
			fmt.Sprintf("Add a node, or cancel the drain: `percolator node drain %d --undo`.", n.NodeId))
	}
	e.disk(n.GetNodeId(), name, r.GetStatus())
	e.stale(name, r.GetStatus().GetStale())
	for _, c := range r.GetStatus().GetCertificates() {
		if c.GetProblem() != "" {
			severity := warning
			if c.GetCritical() {
				severity = critical
			}
			e.add(severity, CertificateEnding, name, c.GetProblem()+".",
				fmt.Sprintf("Issue a new one, `percolator cert create-node NAME --host %s --ca-dir CA --force`, and copy it; a "+
					"running node reloads it.", hostOf(n)))
		}
	}
	for _, differs := range r.GetStatus().GetPolicyDiffers() {
		e.add(info, SettingsDiffer, name, differs+".",
			"Remove the flag, or change the policy: `percolator cluster set KEY=VALUE`.")
	}
}

// stale reports replicas that lack entries that they acknowledged.
func (e *examination) stale(name string, s *pb.StaleStatus) {
	const (
		why   = "its directory is an older copy, or its disk has lost synced writes"
		cause = "Never start a node on a restored directory or disk snapshot. If nobody did, check " +
			"that the disk keeps synced writes."
	)
	if len(s.GetAlone()) > 0 {
		e.add(critical, OldCopy, name, fmt.Sprintf("Its directory is an older copy, and no other node holds "+
			"tablets %s: their writes since that copy are lost.", list(s.Alone)),
			"Restore their tables from a backup, or repeat the missing writes. "+cause)
	}
	switch {
	case s.GetWaiting() > 0:
		e.add(warning, OldCopy, name, fmt.Sprintf("Replicas that lack acknowledged entries and do not vote: %d; %s.",
			s.Waiting, why),
			"Wait: they are recreated automatically wherever the other replicas form a quorum. "+cause)
	case s.GetFound() > 0:
		e.add(info, OldCopy, name, fmt.Sprintf("Replicas recreated because they lacked acknowledged entries: %d; %s.",
			s.Found, why), cause)
	}
}

// hostOf returns the node's host for clients, or HOST if it is unknown or would need quoting in
// a shell.
func hostOf(n *pb.Node) string {
	if host, _, err := net.SplitHostPort(n.GetListen()); err == nil && pastableName(host) == host {
		return host
	}
	return "HOST"
}

// on returns the tablets that have a replica on the node.
func (e *examination) on(node uint64) (tablets []uint64) {
	for _, id := range slices.Sorted(maps.Keys(e.tablets)) {
		holds := func(r *pb.Replica) bool { return r.GetNodeId() == node }
		if slices.ContainsFunc(e.tablets[id].GetReplicas(), holds) {
			tablets = append(tablets, id)
		}
	}
	return tablets
}

// disk examines a node's store and its file systems.
func (e *examination) disk(id uint64, name string, s *pb.NodeStatusResponse) {
	switch {
	case s.GetDamaged() != "":
		e.add(critical, StoreDamaged, name, "Its store is damaged: "+s.GetDamaged()+".",
			"Check the disk. Then stop the node, empty its directory and start it again: it joins as a new node, and its replicas are recreated.")
	case s.GetFailed() != "":
		e.add(critical, ReplicaFailed, name, "Some of its replicas do not serve: "+s.GetFailed()+".",
			fmt.Sprintf("See its log. Restart the node; if that does not help, drain it: "+
				"`percolator node drain %d`.", id))
	}
	switch {
	case s.GetWriteBlocked() != "":
		e.add(critical, WritesRefused, name, "It refuses writes: "+s.GetWriteBlocked()+".",
			"Free space, or raise the named limit; it then accepts writes again automatically. Added nodes "+
				"take over a share of the data.")
	case s.GetDiskFree()+s.GetDiskUsed() > 0 && s.GetDiskFree() < lowDisk:
		e.add(warning, DiskLow, name, fmt.Sprintf("Its disk has %d MiB left.", s.GetDiskFree()>>20),
			"Free space or add a node before it refuses writes.")
	case s.GetLog().GetDir() != "" && s.GetLog().GetDiskFree() < lowDisk:
		e.add(warning, DiskLow, name, fmt.Sprintf("The disk of its Raft log, at %s, has %d MiB left.",
			s.GetLog().GetDir(), s.GetLog().GetDiskFree()>>20), "Free space there.")
	}
}

// clocks compares the nodes' clocks with their median. Of two nodes that differ it reports both:
// which one is right is unknown.
func (e *examination) clocks() {
	var ahead []int64
	for _, r := range e.status.GetNodes() {
		if r.GetStatus() != nil {
			ahead = append(ahead, r.GetClockAheadMs())
		}
	}
	if len(ahead) < 2 {
		return
	}
	slices.Sort(ahead)
	median := ahead[len(ahead)/2]
	if len(ahead)%2 == 0 {
		median = (ahead[len(ahead)/2-1] + median) / 2
	}
	for _, r := range e.status.GetNodes() {
		off := time.Duration(r.GetClockAheadMs()-median) * time.Millisecond
		if r.GetStatus() == nil || off.Abs() < clockWarn {
			continue
		}
		severity, where := warning, "ahead of"
		if off.Abs() >= clockCritical {
			severity = critical
		}
		if off < 0 {
			where = "behind"
		}
		e.add(severity, ClockOff, nodeName(r.GetNode()),
			fmt.Sprintf("Its clock is %s %s the others'.", inspect.Span(off.Abs()), where),
			"Set its clock and keep it synchronised (chrony, systemd-timesyncd). A node that is 5 s off cannot join.")
	}
}

// clockSpeeds reports nodes whose clocks run faster or slower than another node's, by the pair, since
// it is unknown which one is right.
func (e *examination) clockSpeeds() {
	for _, r := range e.status.GetNodes() {
		for _, s := range r.GetStatus().GetClockSpeeds() {
			off, where := s.GetFasterPpm(), "faster"
			if off < 0 {
				off, where = -off, "slower"
			}
			certain := off - int64(s.GetErrorPpm())
			severity, next := warning, ""
			switch {
			case certain < speedWarn:
				continue
			case certain >= speedCritical:
				severity = critical
				next = " Until then its promises count for nothing; `cluster set leases=off` does without all."
			}
			e.add(severity, ClockSpeed, fmt.Sprintf("node %d", s.GetNodeId()),
				fmt.Sprintf("Its clock runs %.1f %% %s than that of node %d.", float64(off)/1e4, where, r.GetNode().GetNodeId()),
				"Find out which of the two is wrong (chronyc tracking, the hypervisor's clock source), and mend it."+next)
		}
	}
}

// versions reports nodes with different builds, which is normal only during an upgrade.
func (e *examination) versions() {
	nodes := map[string][]uint64{}
	for _, r := range e.status.GetNodes() {
		if v := r.GetStatus().GetVersion(); v != "" {
			nodes[v] = append(nodes[v], r.GetNode().GetNodeId())
		}
	}
	if len(nodes) < 2 {
		return
	}
	var texts []string
	for _, v := range slices.Sorted(maps.Keys(nodes)) {
		texts = append(texts, fmt.Sprintf("%s on %s", v, list(nodes[v])))
	}
	e.add(info, VersionsMixed, "cluster", "Nodes run different builds: "+strings.Join(texts, "; ")+".",
		"Finish the upgrade: restart the nodes that run the older build, one at a time.")
}

// upgrade reports a version that all nodes support and that is not active yet.
func (e *examination) upgrade() {
	var common, active version.Number
	for _, r := range e.status.GetNodes() {
		if r.GetStatus() == nil {
			return // the node does not answer, and may run an earlier build
		}
		knows, agreed := wire.Versions(r.Status.Versions), wire.Agreed(r.Status.Agreed)
		if common != 0 && knows.Newest != common {
			return
		}
		common, active = knows.Newest, max(active, agreed.Active)
	}
	if active == 0 || common <= active {
		return
	}
	var waits []string
	for _, f := range version.Features() {
		if f.Since > active {
			waits = append(waits, f.Name)
		}
	}
	text := fmt.Sprintf("The upgrade is not finalised: all nodes support version %d, the active version is %d.", common, active)
	if len(waits) > 0 {
		text += " Refused until then: " + strings.Join(waits, "; ") + "."
	}
	e.add(info, UpgradeOpen, "cluster", text,
		"If the new build works well: `percolator cluster finalize`. Until then every node can go back to the "+
			"build before.")
}

// revoked reports that nodes have different revocation lists: some accept certificates that others
// refuse. It does not know which list is the newest.
func (e *examination) revoked() {
	nodes, counts := map[string][]uint64{}, map[string]uint32{}
	for _, r := range e.status.GetNodes() {
		if l := r.GetStatus().GetRevoked(); l != nil {
			nodes[l.Digest] = append(nodes[l.Digest], r.GetNode().GetNodeId())
			counts[l.Digest] = l.Count
		}
	}
	if len(nodes) < 2 {
		return
	}
	var texts []string
	for _, digest := range slices.Sorted(maps.Keys(nodes)) {
		texts = append(texts, fmt.Sprintf("%d on %s", counts[digest], list(nodes[digest])))
	}
	e.add(warning, RevokedDiffer, "cluster", "Nodes have different lists of revoked certificates: "+
		strings.Join(texts[:min(len(texts), maxNamed)], "; ")+
		". A certificate that one node refuses is accepted by another.",
		"Copy `ca.crl` to the certificate folder of each node; nodes reload it within 1 s. If a node ignores "+
			"the copy, its log says why.")
}

// authorities reports nodes whose certificates other nodes do not accept. Existing connections
// continue, so nothing else shows the mismatch.
func (e *examination) authorities() {
	for _, r := range e.status.GetNodes() {
		for _, c := range r.GetStatus().GetCertificates() {
			var strangers []uint64
			for _, other := range e.status.GetNodes() {
				for _, o := range other.GetStatus().GetCertificates() {
					if len(o.GetTrusted()) > 0 && !slices.Contains(o.GetTrusted(), c.GetIssuer()) {
						strangers = append(strangers, other.GetNode().GetNodeId())
					}
				}
			}
			if c.GetIssuer() != "" && len(strangers) > 0 {
				e.add(critical, CertificateMismatch, nodeName(r.GetNode()), fmt.Sprintf(
					"Its certificate was issued by authority %s, which is missing from the ca.crt of %s: new connections between them fail.",
					c.GetIssuer(), list(strangers)),
					"Issue its certificate with the authority of the others, or first add that authority to `ca.crt` on all "+
						"nodes. Nodes reload the files within 1 s.")
			}
		}
	}
}

// roleless reports client certificates without a role, once for each name.
func (e *examination) roleless() {
	where := map[string][]string{}
	for _, r := range e.status.GetNodes() {
		for _, c := range r.GetStatus().GetRoleless() {
			at := fmt.Sprintf("%s on %s", c.File, nodeName(r.Node))
			if c.File == "" {
				ago := time.UnixMilli(e.status.GetUnixMs()).Sub(time.UnixMilli(c.SeenUnixMs))
				at = fmt.Sprintf("called %s %s ago", nodeName(r.Node), inspect.Span(max(ago, 0)))
			}
			where[c.Name] = append(where[c.Name], at)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(where)) {
		e.add(warning, RolelessClient, "certificate "+name, fmt.Sprintf(
			"It names no role, so its holder has all permissions of an operator: %s.",
			strings.Join(where[name][:min(len(where[name]), maxNamed)], ", ")),
			fmt.Sprintf("Replace it: `percolator cert create-client %s --role writer --ca-dir CA`; or the role reader, observer or "+
				"operator.", pastableName(name)))
	}
}
