package health

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

const now = int64(1_800_000_000_000)

// ago returns a timestamp of the oracle d ago.
func ago(d time.Duration) uint64 { return uint64(mvcc.TimestampAt(now - d.Milliseconds())) }

func replicas(nodes ...uint64) (out []*pb.Replica) {
	for i, n := range nodes {
		out = append(out, &pb.Replica{ReplicaId: uint64(i + 1), NodeId: n})
	}
	return out
}

// healthy is a cluster of three nodes with four tablets and no findings.
func healthy() *pb.ClusterStatusResponse {
	r := &pb.ClusterStatusResponse{UnixMs: now, NodeId: 1}
	for id := uint64(1); id <= 3; id++ {
		status := &pb.NodeStatusResponse{
			NodeId: id, Version: "v1", DiskFree: 100 << 30, DiskUsed: 1 << 30,
			Meta: &pb.MetaSight{LeaderNode: 1}, History: &pb.HistoryStatus{},
		}
		for tablet := uint64(1); tablet <= 4; tablet++ {
			status.Tablets = append(status.Tablets, &pb.StatusResponse{
				Tablet: &pb.TabletDescriptor{TabletId: tablet, Epoch: 1, Replicas: replicas(1, 2, 3)},
				NodeId: id, Leader: tablet%3+1 == id, LeaderNode: tablet%3 + 1,
			})
		}
		r.Nodes = append(r.Nodes, &pb.NodeReport{
			Node:   &pb.Node{NodeId: id, Alive: true, State: pb.NodeState_NODE_STATE_ACTIVE},
			Status: status,
		})
	}
	r.Observers = []*pb.ObserverState{{
		Info: &pb.ObserverInfo{Name: "count"}, Linked: true, Notifications: 3,
		OldestTs: ago(time.Second), Status: &pb.ObserverStatus{},
	}}
	return r
}

// away changes a node's report to that of a killed node.
func away(r *pb.NodeReport) { r.Node.Alive, r.Status = false, nil }

// alone makes the node the only one with replicas.
func alone(r *pb.ClusterStatusResponse, node uint64) {
	for _, n := range r.Nodes {
		for _, t := range n.Status.Tablets {
			t.Tablet.Replicas, t.Tablet.Epoch = replicas(node), 2
		}
	}
}

// backupHeld is history held for a backup, for at most a day.
func backupHeld(since time.Duration) *pb.HistoryStatus {
	return &pb.HistoryStatus{
		Holds: 1, OldestHold: ago(since), MaxHoldMs: uint64((24 * time.Hour).Milliseconds()),
		BackupHolds: []*pb.BackupHold{{Backup: "x-full", At: ago(since)}},
	}
}

func TestNothingWrong(t *testing.T) {
	findings, survives := Examine(healthy(), nil)
	if len(findings) != 0 || survives != 1 {
		t.Errorf("survives %d; %v", survives, findings)
	}
}

// TestSurvivesCountsFollowers: a replica counts as able to replace another only if its leader
// reports it; the leader's report never makes a quorum appear lost.
func TestSurvivesCountsFollowers(t *testing.T) {
	for _, tc := range []struct {
		name     string
		follower *pb.ReplicaProgress // of both
		survives int32
	}{
		{"up to date", &pb.ReplicaProgress{Active: true, Match: 9}, 1},
		{"not heard of", &pb.ReplicaProgress{Match: 9}, 0},
		{"waits for a snapshot", &pb.ReplicaProgress{Active: true, Match: 9, Snapshot: true}, 0},
		{"has nothing yet", &pb.ReplicaProgress{Active: true}, 0},
		{"stale", &pb.ReplicaProgress{Active: true, Match: 9, Stale: true}, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := healthy()
			leading := r.Nodes[0].Status.Tablets[2]
			if !leading.Leader {
				t.Fatal("the node does not lead the tablet")
			}
			for i, replica := range leading.Tablet.Replicas {
				p := &pb.ReplicaProgress{Active: true, Match: 9}
				if i > 0 {
					p = proto.CloneOf(tc.follower)
				}
				p.Replica = replica
				leading.Replicas = append(leading.Replicas, p)
			}
			findings, survives := Examine(r, nil)
			want := map[int32]string{0: NoSpare, -1: NoQuorum}[tc.survives]
			if survives != tc.survives || want == "" && len(findings) > 0 ||
				want != "" && (len(findings) == 0 || findings[0].Kind != want) {
				t.Errorf("survives %d nodes, want %d; %v", survives, tc.survives, findings)
			}
		})
	}
}

// TestSurvivesWithoutTablets: while no tablet is known, no node is reported as dispensable.
func TestSurvivesWithoutTablets(t *testing.T) {
	r := healthy()
	for _, n := range r.Nodes {
		n.Status.Tablets = nil
	}
	if findings, survives := Examine(r, nil); survives != 0 || len(findings) > 0 {
		t.Errorf("survives %d nodes; %v", survives, findings)
	}
}

// kindCase is a kind of finding, with one fault in a healthy cluster that causes it.
type kindCase struct {
	kind     string
	severity pb.Severity
	harm     func(*pb.ClusterStatusResponse)
	subject  string
	says     string // a part of the text or the remedy
	survives int32
}

// allKinds covers every kind of finding at least once.
func allKinds() []kindCase {
	return slices.Concat(nodeKinds(), clusterKinds(), dataKinds(), observerKinds())
}

func TestKinds(t *testing.T) {
	for _, row := range allKinds() {
		t.Run(fmt.Sprint(row.kind, " ", row.severity), func(t *testing.T) {
			cluster := healthy()
			row.harm(cluster)
			findings, survives := Examine(cluster, nil)
			i := slices.IndexFunc(findings, func(f *pb.Finding) bool { return f.Kind == row.kind })
			if i < 0 {
				t.Fatalf("not found: %v", findings)
			}
			f := findings[i]
			if f.Severity != row.severity || f.Subject != row.subject ||
				!strings.Contains(f.Text+" "+f.Remedy, row.says) || f.Remedy == "" {
				t.Errorf("%v, want %v of %s that reports %q", f, row.severity, row.subject, row.says)
			}
			if survives != row.survives {
				t.Errorf("survives %d nodes, want %d", survives, row.survives)
			}
		})
	}
}

// TestKindsAreExplained: every kind has a case and a row in the runbook.
func TestKindsAreExplained(t *testing.T) {
	tried := map[string]bool{}
	for _, row := range allKinds() {
		tried[row.kind] = true
	}
	source, err := os.ReadFile("health.go")
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := os.ReadFile("../../docs/operating/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := regexp.MustCompile(`(?m)^\t[A-Z]\w+ += "([a-z-]+)"`).FindAllSubmatch(source, -1)
	if len(kinds) != len(tried) {
		t.Errorf("%d kinds, and %d are tried", len(kinds), len(tried))
	}
	for _, kind := range kinds {
		if !slices.Contains(Kinds(), string(kind[1])) {
			t.Errorf("Kinds lacks %s", kind[1])
		}
		if !strings.Contains(string(runbook), "| `"+string(kind[1])+"` |") {
			t.Errorf("docs/operating/alerts.md has no row for %s", kind[1])
		}
	}
}

// nodeKinds are the findings on single nodes.
func nodeKinds() []kindCase {
	return []kindCase{
		{NodeAway, warning, func(r *pb.ClusterStatusResponse) { away(r.Nodes[2]) }, "node 3",
			"holds replicas of 4 tablets", 0},
		{NodeAway, info, func(r *pb.ClusterStatusResponse) {
			r.Nodes = append(r.Nodes, &pb.NodeReport{
				Node: &pb.Node{NodeId: 4, State: pb.NodeState_NODE_STATE_GONE},
			})
		}, "node 4", "node forget 4 --yes", 1},
		{NodeSilent, critical, func(r *pb.ClusterStatusResponse) {
			r.Nodes[1].Status, r.Nodes[1].Error = nil, "deadline exceeded"
		}, "node 2", "deadline exceeded", 0},
		{NodeUnregistered, warning, func(r *pb.ClusterStatusResponse) {
			r.Nodes[1].Node.State = pb.NodeState_NODE_STATE_UNSPECIFIED
		}, "node 2", "missing from the node table", 1},
		{DrainBlocked, warning, func(r *pb.ClusterStatusResponse) {
			r.Nodes[1].Node.Blocked, r.Nodes[1].Node.Listen = "too few nodes", "10.0.0.2:7800"
		}, "node 10.0.0.2:7800", "drain 2 --undo", 1},
		{WritesRefused, critical, func(r *pb.ClusterStatusResponse) {
			r.Nodes[1].Status.WriteBlocked = "disk full"
		}, "node 2", "Free space", 1},
		{DiskLow, warning, func(r *pb.ClusterStatusResponse) { r.Nodes[1].Status.DiskFree = 1 << 30 },
			"node 2", "1024 MiB left", 1},
		{StoreDamaged, critical, func(r *pb.ClusterStatusResponse) {
			r.Nodes[1].Status.Damaged = "000007.sst"
		}, "node 2", "empty its directory", 1},
		{ReplicaFailed, critical, func(r *pb.ClusterStatusResponse) {
			r.Nodes[1].Status.Failed = "tablet 3: panic"
		}, "node 2", "tablet 3: panic", 1},
		{OldCopy, warning, func(r *pb.ClusterStatusResponse) {
			r.Nodes[1].Status.Stale = &pb.StaleStatus{Waiting: 2, Found: 3}
			leading := r.Nodes[0].Status.Tablets[2] // tablet 3
			leading.Replicas = []*pb.ReplicaProgress{{Replica: leading.Tablet.Replicas[1], Stale: true}}
		}, "node 2", "do not vote: 2; its directory is an older copy", 0},
		{OldCopy, info, func(r *pb.ClusterStatusResponse) {
			r.Nodes[1].Status.Stale = &pb.StaleStatus{Found: 1}
		}, "node 2", "Replicas recreated", 1},
		{OldCopy, critical, func(r *pb.ClusterStatusResponse) {
			r.Nodes[1].Status.Stale = &pb.StaleStatus{Alone: []uint64{3, 4}}
		}, "node 2", "no other node holds tablets 3, 4: their writes", 1},
		{ClockOff, warning, func(r *pb.ClusterStatusResponse) { r.Nodes[1].ClockAheadMs = 700 },
			"node 2", "700ms ahead of", 1},
		{ClockOff, critical, func(r *pb.ClusterStatusResponse) { r.Nodes[1].ClockAheadMs = -9000 },
			"node 2", "9s behind", 1},
		{ClockSpeed, warning, func(r *pb.ClusterStatusResponse) {
			r.Nodes[0].Status.ClockSpeeds = []*pb.ClockSpeed{
				{NodeId: 2, FasterPpm: -60_000, ErrorPpm: 800}, {NodeId: 3, FasterPpm: 10_700, ErrorPpm: 800},
			}
		}, "node 2", "6.0 % slower than that of node 1", 1},
		{ClockSpeed, critical, func(r *pb.ClusterStatusResponse) {
			r.Nodes[0].Status.ClockSpeeds = []*pb.ClockSpeed{{NodeId: 2, FasterPpm: 130_000, ErrorPpm: 800}}
		}, "node 2", "13.0 % faster than that of node 1", 1},
		{CertificateEnding, warning, func(r *pb.ClusterStatusResponse) {
			r.Nodes[1].Status.Certificates = []*pb.CertificateStatus{{Problem: "node.crt ends in 3 days"}}
		}, "node 2", "create-node", 1},
		{CertificateEnding, critical, func(r *pb.ClusterStatusResponse) {
			r.Nodes[1].Status.Certificates = []*pb.CertificateStatus{{Problem: "node.crt EXPIRED", Critical: true}}
		}, "node 2", "create-node", 1},
		{CertificateMismatch, critical, func(r *pb.ClusterStatusResponse) {
			for i, issuer := range []string{"1A:2B", "3C:4D", "1A:2B"} {
				trusted := []string{"1A:2B"}
				if i == 1 {
					trusted = append(trusted, issuer)
				}
				r.Nodes[i].Status.Certificates = []*pb.CertificateStatus{
					{File: "node.crt", Issuer: issuer, Trusted: trusted}, {File: "ca.crt"},
				}
			}
		}, "node 2", "authority 3C:4D, which is missing from the ca.crt of 1, 3: new", 1},
		{NodeSilent, critical, func(r *pb.ClusterStatusResponse) {
			r.Nodes[1].Status, r.Nodes[1].CertificateRefused = nil, true
		}, "node 2", "cert show", 0},
		{RolelessClient, warning, func(r *pb.ClusterStatusResponse) {
			r.Nodes[0].Status.Roleless = []*pb.RolelessCertificate{{Name: "ann", SeenUnixMs: now - 5000}}
			r.Nodes[1].Status.Roleless = []*pb.RolelessCertificate{{Name: "ann", File: "client.crt"}}
		}, "certificate ann", "permissions of an operator: called node 1 5s ago, client.crt on node 2.", 1},
		{RevokedDiffer, warning, func(r *pb.ClusterStatusResponse) {
			for i, n := range r.Nodes {
				n.Status.Revoked = &pb.RevokedStatus{Count: uint32(i / 2), Digest: fmt.Sprint(i / 2)}
			}
		}, "cluster", "certificates: 0 on 1, 2; 1 on 3. A", 1},
	}
}

// clusterKinds are the findings on versions, settings, quorums and replicas.
func clusterKinds() []kindCase {
	return []kindCase{
		{VersionsMixed, info, func(r *pb.ClusterStatusResponse) { r.Nodes[1].Status.Version = "v2" },
			"cluster", "v1 on 1, 3; v2 on 2", 1},
		{UpgradeOpen, info, func(r *pb.ClusterStatusResponse) {
			for _, n := range r.Nodes {
				n.Status.Versions = &pb.BuildVersions{Oldest: 2, Newest: 3}
				n.Status.Agreed = &pb.ClusterVersion{Minimum: 2, Active: 2}
			}
		}, "cluster", "all nodes support version 3, the active version is 2. Refused until then: backup", 1},
		{BackupLate, warning, func(r *pb.ClusterStatusResponse) {
			r.Schedules = []*pb.BackupSchedule{
				{Name: "new", FirstUnixMs: now - 7200_000, EveryMs: 3600_000},
				{Name: "nightly", SuccessUnixMs: now - 7200_001, EveryMs: 3600_000},
			}
		}, "backup schedule nightly", "late: the newest is 2h0m old. The node", 1},
		{BackupLate, warning, func(r *pb.ClusterStatusResponse) {
			r.Schedules = []*pb.BackupSchedule{
				{Name: "nightly", FirstUnixMs: now, EveryMs: 3600_000, Error: "no room"},
			}
		}, "backup schedule nightly", "failed (there is none): no room. Fix", 1},
		{BackupLate, warning, func(r *pb.ClusterStatusResponse) {
			r.Schedules = []*pb.BackupSchedule{
				{Name: "nightly", SuccessUnixMs: now, EveryMs: 3600_000, PruneError: "denied"},
			}
		}, "backup schedule nightly", "removed: denied.", 1},
		{ExpiryLate, warning, func(r *pb.ClusterStatusResponse) {
			r.Nodes[0].Status.Expiry = &pb.ExpiryStatus{Rules: []*pb.ExpiryRule{
				{TableName: "events", Others: true, LagMs: 4200_000, ToleratedMs: 3600_000},
				{TableName: "events", Column: []byte("ip"), LagMs: 4200_001, ToleratedMs: 3600_000, Error: "no quorum"},
			}}
		}, "table events", "column ip have been due for 1h10m: no quorum.", 1},
		{SettingsDiffer, info, func(r *pb.ClusterStatusResponse) {
			r.Nodes[1].Status.PolicyDiffers = []string{"--replicas 5"}
		}, "node 2", "--replicas 5", 1},
		{MetaSilent, critical, func(r *pb.ClusterStatusResponse) {
			r.Nodes[1].Status.Meta.Error = "no leader"
		}, "meta", "nodes 2: no leader", 1},
		{NoQuorum, critical, func(r *pb.ClusterStatusResponse) {
			away(r.Nodes[1])
			away(r.Nodes[2])
		}, "tablets 1, 2, 3, 4", "directories: node 2, node 3.", -1},
		{NoLeader, critical, func(r *pb.ClusterStatusResponse) {
			for _, n := range r.Nodes {
				n.Status.Tablets[1].Leader, n.Status.Tablets[1].LeaderlessMs = false, 4000
			}
		}, "tablets 2", "up to 4s", 1},
		{TabletsMany, warning, func(r *pb.ClusterStatusResponse) {
			for _, n := range r.Nodes {
				for _, t := range n.Status.Tablets[1:] {
					t.Tablet.StartTable = 16
				}
			}
			r.Nodes[2].Status.MaxTablets = 3
		}, "tablets",
			"There are 3 tablets, and the policy allows 3: at the limit", 1},
		{NoSpare, warning, func(r *pb.ClusterStatusResponse) { away(r.Nodes[2]) }, "cluster",
			"Restart the nodes", 0},
		{NoSpare, warning, func(r *pb.ClusterStatusResponse) { alone(r, 1) }, "cluster",
			"yet: all nodes answer, but some tablets have too few replicas that are up to date. Wait until replicas", 0},
		{NoSpare, info, func(r *pb.ClusterStatusResponse) {
			alone(r, 1)
			r.Nodes = r.Nodes[:1]
			r.Nodes[0].Node.Listen = "127.0.0.1:7800"
		}, "cluster", "--listen HOST:PORT --join 127.0.0.1:7800 --insecure`", 0},
		{NoSpare, info, func(r *pb.ClusterStatusResponse) {
			alone(r, 1)
			r.Nodes = r.Nodes[:1]
			r.Nodes[0].Status.Certificates = []*pb.CertificateStatus{{}}
		}, "cluster", "--certs CERTS`", 0},
	}
}

// dataKinds are the findings on placement, history, backups and locks.
func dataKinds() []kindCase {
	return []kindCase{
		{PlacementBlocked, warning, func(r *pb.ClusterStatusResponse) {
			r.Nodes[0].Status.Placement = &pb.PlacementStatus{Blocked: []string{"tablet 3: no room"}}
		}, "placement", "tablet 3: no room", 1},
		{HistoryHeld, info, func(r *pb.ClusterStatusResponse) {
			r.Nodes[0].Status.History = &pb.HistoryStatus{Holds: 1, OldestHold: ago(2 * time.Hour)}
		}, "history", "2h0m", 1},
		{BackupHeld, info, func(r *pb.ClusterStatusResponse) {
			r.Nodes[0].Status.History = backupHeld(2 * time.Hour)
			r.Nodes[0].Status.Tablets[1].Garbage = 12
		}, "backup x-full", "held for 2h0m: about 12 old versions", 1},
		{BackupHeld, warning, func(r *pb.ClusterStatusResponse) {
			r.Nodes[0].Status.History = backupHeld(time.Second)
			r.Nodes[1].Status.DiskFree = 1 << 30
		}, "backup x-full", "A disk is low on space", 1},
		{BackupHeld, warning, func(r *pb.ClusterStatusResponse) {
			r.Nodes[0].Status.History = backupHeld(23 * time.Hour)
		}, "backup x-full", "expires in 1h0m", 1},
		{BackupHeld, warning, func(r *pb.ClusterStatusResponse) {
			r.Nodes[0].Status.History = backupHeld(25 * time.Hour)
		}, "backup x-full", "percolator backup release x-full", 1},
		{RestoreUnfinished, warning, func(r *pb.ClusterStatusResponse) {
			r.Jobs = []*pb.Job{{Kind: "restore", State: "unfinished", Subject: "table bank"}}
		}, "table bank", "percolator restore", 1},
		{Unverified, warning, func(r *pb.ClusterStatusResponse) {
			r.Recoveries = []*pb.Recovery{{Plan: "p", Dead: []uint64{3}, Tablets: []uint64{1, 2}}}
		}, "recovery p", "percolator recover verify", 1},
		{LockOld, warning, func(r *pb.ClusterStatusResponse) {
			r.Nodes[2].Status.Tablets[1].OldestLockTs = ago(90 * time.Second)
		}, "tablets 2", "1m30s", 1},
	}
}

// observerKinds are the findings on observers.
func observerKinds() []kindCase {
	return []kindCase{
		{ObserverUnlinked, critical, func(r *pb.ClusterStatusResponse) { r.Observers[0].Linked = false },
			"observer count", "3 notifications wait", 1},
		{ObserverPaused, warning, func(r *pb.ClusterStatusResponse) {
			r.Observers[0].Info.Paused = true
		}, "observer count", "observer resume count", 1},
		{ObserverBehind, warning, func(r *pb.ClusterStatusResponse) {
			r.Observers[0].OldestTs = ago(2 * time.Minute)
		}, "observer count", "the oldest for 2m0s", 1},
		{ObserverParked, warning, func(r *pb.ClusterStatusResponse) { r.Observers[0].Parked = 1 },
			"observer count", "1 notification parked", 1},
		{ObserverStuck, warning, func(r *pb.ClusterStatusResponse) { r.Observers[0].Status.Stuck = 2 },
			"observer count", "2 runs past the deadline", 1},
		{ObserverContended, warning, func(r *pb.ClusterStatusResponse) {
			r.Observers[0].Status.Contended = 2
		}, "observer count", "observer limit count", 1},
		{ObserverUnserved, info, func(r *pb.ClusterStatusResponse) {
			r.Observers[0].Status.Unserved = 2
		}, "observer count", "2 cells whose runs keep failing: the function reports", 1},
		{ObserverRepeating, info, func(r *pb.ClusterStatusResponse) {
			r.Observers[0].Status.Rows = []*pb.ObserverRow{{Runs: 2000}, {RunningMs: 1}}
		}, "observer count", "for 1 row hundreds of times", 1},
		{ObserverLoop, warning, func(r *pb.ClusterStatusResponse) {
			r.Observers[0].Status.Rows = []*pb.ObserverRow{
				{Row: []byte("a"), Runs: 2000, Cycle: "count → count"}, {Row: []byte("b"), Cycle: "count → count"},
			}
		}, "observer count", "It sets itself off, count → count, for 2 rows, so that these runs are slowed down.", 1},
		{ObserverBehind, warning, func(r *pb.ClusterStatusResponse) {
			r.Observers[0].OldestTs = ago(2 * time.Minute)
			r.Observers[0].Status.Rows = []*pb.ObserverRow{{Runs: 2000}}
		}, "observer count", "does not trigger itself", 1},
		{ObserverOutside, warning, func(r *pb.ClusterStatusResponse) {
			r.Observers[0].Status.Outside = &pb.OutsideWait{WaitedMs: 61_000, NextMs: 2000, Error: "429 slow down"}
		}, "observer count", "UTC (1m1s), next attempt in 2s: 429 slow down", 1},
		{ObserverBehind, warning, func(r *pb.ClusterStatusResponse) {
			r.Observers[0].OldestTs = ago(2 * time.Minute)
			r.Observers[0].Status.Unserved = 1
		}, "observer count", "observer-unserved", 1},
	}
}

// Remedies are pasted into shells, and an observer's name is arbitrary.
func TestNamesInRemedies(t *testing.T) {
	for name, want := range map[string]string{
		"count": "resume count`.", "a.b-c_9": "resume a.b-c_9`.", "x; rm -rf .": "resume NAME`.",
		"--all": "resume NAME`.", "$(id)": "resume NAME`.", "": "resume NAME`.",
	} {
		cluster := healthy()
		cluster.Observers[0].Info = &pb.ObserverInfo{Name: name, Paused: true}
		findings, _ := Examine(cluster, nil)
		if len(findings) != 1 || !strings.HasSuffix(findings[0].Remedy, want) {
			t.Errorf("the report on %q is: %v", name, findings)
		}
	}
}

// A tablet all of whose nodes are absent is known from the tablet map alone.
func TestTabletOfAbsentNodes(t *testing.T) {
	cluster := healthy()
	cluster.Nodes = append(cluster.Nodes, &pb.NodeReport{Node: &pb.Node{NodeId: 4}})
	lost := &pb.TabletDescriptor{TabletId: 9, Epoch: 1, Replicas: replicas(4)}
	findings, survives := Examine(cluster, []*pb.TabletDescriptor{lost})
	if survives != -1 || findings[0].Kind != NoQuorum || findings[0].Subject != "tablets 9" {
		t.Errorf("survives %d; %v", survives, findings)
	}
}

// While replicas are being changed, the old voters and the new voters each need a quorum.
func TestSpareWhileChanging(t *testing.T) {
	changing := replicas(1, 2, 3, 4)
	changing[0].Outgoing, changing[3].Incoming = true, true
	changing = append(changing, &pb.Replica{ReplicaId: 9, NodeId: 9, Learner: true})
	for _, row := range []struct {
		up   []uint64
		want int
	}{
		{[]uint64{1, 2, 3, 4}, 1}, {[]uint64{1, 2, 3}, 0}, {[]uint64{2, 3}, 0},
		{[]uint64{1, 2}, -1}, {[]uint64{3, 4, 9}, -1},
	} {
		up := map[uint64]bool{}
		for _, n := range row.up {
			up[n] = true
		}
		if got := spare(changing, up, nil); got != row.want {
			t.Errorf("SPARE: with %v: %d, want %d", row.up, got, row.want)
		}
	}
}

// Nodes' reports may be empty or invalid: no panic, and a finding is reported.
func TestNonsense(t *testing.T) {
	for _, status := range []*pb.ClusterStatusResponse{
		nil, {}, {Nodes: []*pb.NodeReport{nil, {}}},
		{Nodes: []*pb.NodeReport{{
			Node: &pb.Node{Alive: true}, ClockAheadMs: math.MinInt64,
			Status: &pb.NodeStatusResponse{Tablets: []*pb.StatusResponse{nil, {}}},
		}}, Observers: []*pb.ObserverState{nil, {}}},
	} {
		Examine(proto.CloneOf(status), []*pb.TabletDescriptor{nil, {}})
	}
}
