package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// This file has the kinds of findings, and what all examinations share.

// The kinds of findings.
const (
	NodeAway            = "node-away"            // not alive by gossip
	NodeSilent          = "node-silent"          // alive by gossip, and does not answer
	NodeUnregistered    = "node-unregistered"    // gossips, and is not in the node table
	DrainBlocked        = "drain-blocked"        // a node that drains cannot go on
	WritesRefused       = "writes-refused"       // the disk is full, or nearly
	DiskLow             = "disk-low"             // it soon will be
	StoreDamaged        = "store-damaged"        // a file of the store is
	ReplicaFailed       = "replica-failed"       // a replica does not serve
	OldCopy             = "old-copy"             // a node's replicas lack what they have acknowledged
	ClockOff            = "clock-off"            // a clock differs from the others'
	CertificateEnding   = "certificate-ending"   // or has ended, or does not fit the node
	CertificateMismatch = "certificate-mismatch" // of an authority that other nodes do not trust
	RevokedDiffer       = "revoked-differ"       // nodes go by different lists of revoked certificates
	RolelessClient      = "roleless-client"      // its certificate is of before there were roles
	VersionsMixed       = "versions-mixed"       // nodes run different builds
	UpgradeOpen         = "upgrade-open"         // all run one that knows more than is used
	SettingsDiffer      = "settings-differ"      // a node was given what the policy overrules
	MetaSilent          = "meta-silent"          // the meta tablet does not answer
	NoQuorum            = "no-quorum"            // tablets have too few replicas on live nodes
	NoLeader            = "no-leader"            // they have enough, and nobody leads
	TabletsMany         = "tablets-many"         // soon no more can be made
	NoSpare             = "no-spare"             // the next node that fails takes a quorum with it
	PlacementBlocked    = "placement-blocked"    // replicas cannot be put where they ought to be
	HistoryHeld         = "history-held"         // old versions are not collected
	BackupHeld          = "backup-held"          // they are, for the next increment of a backup
	BackupLate          = "backup-late"          // a schedule's backups fail, or are not made
	RestoreUnfinished   = "restore-unfinished"   // a table can't be opened, and nobody restores it
	LockOld             = "lock-old"             // a lock that nobody has resolved
	ObserverUnlinked    = "observer-unlinked"    // work waits, and no process runs it
	ObserverPaused      = "observer-paused"      // work waits, and somebody has paused it
	ObserverBehind      = "observer-behind"      // the oldest notification has waited long
	ObserverParked      = "observer-parked"      // notifications were given up
	ObserverStuck       = "observer-stuck"       // runs go on past their deadline
	ObserverContended   = "observer-contended"   // runs come to nothing again and again
	ObserverUnserved    = "observer-unserved"    // likewise, since something is unavailable
	ObserverRepeating   = "observer-repeating"   // it runs for the same rows again and again

	Unverified = "recovered-unverified" // after a quorum was lost, and nobody has looked since
)

// Kinds returns all kinds of findings.
func Kinds() []string {
	return []string{
		NodeAway, NodeSilent, NodeUnregistered, DrainBlocked, WritesRefused, DiskLow, StoreDamaged,
		ReplicaFailed, OldCopy, ClockOff, CertificateEnding, CertificateMismatch, RevokedDiffer,
		RolelessClient, VersionsMixed, UpgradeOpen, SettingsDiffer, MetaSilent, NoQuorum, NoLeader,
		TabletsMany, NoSpare, PlacementBlocked, HistoryHeld, BackupHeld, BackupLate, RestoreUnfinished,
		LockOld, ObserverUnlinked, ObserverPaused, ObserverBehind, ObserverParked, ObserverStuck,
		ObserverContended, ObserverUnserved, ObserverRepeating, Unverified,
	}
}

const (
	critical = pb.Severity_SEVERITY_CRITICAL
	warning  = pb.Severity_SEVERITY_WARNING
	info     = pb.Severity_SEVERITY_INFO
)

const (
	// clockWarn and clockCritical are differences of clocks. Locks live for ten seconds, and
	// a node that is five seconds off is not let in.
	clockWarn, clockCritical = 500 * time.Millisecond, 5 * time.Second
	// lowDisk is four times what a store needs to go on (store.DefaultMinFreeBytes).
	lowDisk = 2 << 30
	// oldLock is several times what a lock of a dead transaction bars others for.
	oldLock = time.Minute
	// behind is how long a notification may wait before it is worth a word.
	behind = time.Minute
	// leaderless is longer than an election takes.
	leaderless = 3 * time.Second
	// oldHold is for how long old versions may be held before it is worth a word.
	oldHold = time.Hour
	// manyTablets is the part of the tablets that the policy allows.
	manyTablets = 0.8
	// maxNamed bounds how many tablets or nodes one sentence names.
	maxNamed = 8
)

// Thresholds are the limits above which something is found, by the metric in which alerts
// see the same, in its unit. Alerts have the same limits.
func Thresholds() map[string]float64 {
	return map[string]float64{
		"percolator_observer_oldest_seconds":            behind.Seconds(),
		"percolator_tablet_oldest_lock_seconds":         oldLock.Seconds(),
		"percolator_tablets_leaderless_longest_seconds": leaderless.Seconds(),
		"percolator_clock_offset_seconds":               clockWarn.Seconds(),
		"percolator_tablets_limit_ratio":                manyTablets,
	}
}

// examination is one look at a cluster.
type examination struct {
	status   *pb.ClusterStatusResponse
	tablets  map[uint64]*pb.TabletDescriptor // the newest that anybody has told of
	findings []*pb.Finding
}

// Examine returns what is wrong, the worst first, and how many more nodes may fail,
// whichever they are, with every tablet still having a quorum; -1 if some have none now.
// tablets is the tablet map, which also names tablets whose nodes are all away.
func Examine(status *pb.ClusterStatusResponse,
	tablets []*pb.TabletDescriptor) (findings []*pb.Finding, survives int32) {
	e := &examination{status: status, tablets: map[uint64]*pb.TabletDescriptor{}}
	for _, d := range tablets {
		e.learn(d)
	}
	for _, n := range status.GetNodes() {
		for _, t := range n.GetStatus().GetTablets() {
			e.learn(t.GetTablet())
		}
	}
	for _, n := range status.GetNodes() {
		e.node(n)
	}
	e.clocks()
	e.roleless()
	e.revoked()
	e.authorities()
	e.versions()
	e.upgrade()
	survives = e.quorums()
	e.leaders()
	e.many()
	e.meta()
	e.placement()
	e.history()
	e.restores()
	e.schedules()
	e.recoveries()
	e.locks()
	for _, o := range status.GetObservers() {
		e.observer(o)
	}
	slices.SortStableFunc(e.findings, func(a, b *pb.Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.Kind, b.Kind))
	})
	return e.findings, survives
}

// learn keeps the descriptor if it is newer than what is known of its tablet.
func (e *examination) learn(d *pb.TabletDescriptor) {
	if known := e.tablets[d.GetTabletId()]; d != nil && (known == nil || known.Epoch < d.Epoch) {
		e.tablets[d.TabletId] = d
	}
}

func (e *examination) add(severity pb.Severity, kind, subject, text, remedy string) {
	e.findings = append(e.findings, &pb.Finding{
		Severity: severity, Kind: kind, Subject: subject, Text: text, Remedy: remedy,
	})
}

// since is how long ago the timestamp was given out, by the answering node's clock.
func (e *examination) since(ts uint64) time.Duration {
	return time.UnixMilli(e.status.GetUnixMs()).Sub(time.UnixMilli(mvcc.Timestamp(ts).Millis()))
}

// nodeName says which node is meant, with the address that people know it by.
func nodeName(n *pb.Node) string {
	if n.GetListen() == "" {
		return fmt.Sprintf("node %d", n.GetNodeId())
	}
	return fmt.Sprintf("node %d (%s)", n.GetNodeId(), n.GetListen())
}

// plural is "1 tablet" or "3 tablets".
func plural[N int | uint32 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// list names the first few of ids.
func list(ids []uint64) string {
	var names []string
	for _, id := range ids {
		names = append(names, fmt.Sprint(id))
	}
	return join(names)
}

// join names the first few.
func join(names []string) string {
	text := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if more := len(names) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// span is a duration as somebody would say it.
func span(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
