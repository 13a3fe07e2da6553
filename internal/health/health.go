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

// Kinds of findings, and helpers shared by all examinations.

// The kinds of findings.
const (
	NodeAway            = "node-away"            // dead according to gossip
	NodeSilent          = "node-silent"          // alive according to gossip, but does not answer
	NodeUnregistered    = "node-unregistered"    // gossips, but is missing from the node table
	DrainBlocked        = "drain-blocked"        // a drain cannot continue
	WritesRefused       = "writes-refused"       // disk space or another resource for files is short
	DiskLow             = "disk-low"             // little disk space is left
	StoreDamaged        = "store-damaged"        // a file of the store is damaged
	ReplicaFailed       = "replica-failed"       // a replica does not serve
	OldCopy             = "old-copy"             // replicas lack entries that they acknowledged
	ClockOff            = "clock-off"            // a clock differs from the other nodes' clocks
	ClockSpeed          = "clock-speed"          // a clock runs faster or slower than another one
	CertificateEnding   = "certificate-ending"   // expired, expiring, unusable or for another host
	CertificateMismatch = "certificate-mismatch" // issued by a CA that other nodes do not trust
	RevokedDiffer       = "revoked-differ"       // nodes have different revocation lists
	RolelessClient      = "roleless-client"      // a client certificate that names no role
	VersionsMixed       = "versions-mixed"       // nodes run different builds
	UpgradeOpen         = "upgrade-open"         // all builds support a version above the active one
	SettingsDiffer      = "settings-differ"      // the policy overrides a node's flag
	MetaSilent          = "meta-silent"          // the meta tablet does not answer
	NoQuorum            = "no-quorum"            // tablets with too few replicas on live nodes
	NoLeader            = "no-leader"            // tablets with a quorum but no leader
	TabletsMany         = "tablets-many"         // near the limit on the number of tablets
	NoSpare             = "no-spare"             // the next node failure loses a quorum
	PlacementBlocked    = "placement-blocked"    // replicas cannot move to their target nodes
	HistoryHeld         = "history-held"         // a reader has held old versions for an hour
	BackupHeld          = "backup-held"          // a backup's next increment holds old versions
	BackupLate          = "backup-late"          // scheduled backups fail or are late
	ExpiryLate          = "expiry-late"          // expired cells have not been deleted in time
	RestoreUnfinished   = "restore-unfinished"   // a half-restored table that no process restores
	LockOld             = "lock-old"             // a lock over a minute old, perhaps of a live transaction
	ObserverUnlinked    = "observer-unlinked"    // work waits, but no process runs the observer
	ObserverPaused      = "observer-paused"      // work waits for a paused observer
	ObserverBehind      = "observer-behind"      // the oldest notification has waited too long
	ObserverParked      = "observer-parked"      // notifications that failed too often
	ObserverStuck       = "observer-stuck"       // runs past their deadline that do not return
	ObserverContended   = "observer-contended"   // runs that keep losing conflicts
	ObserverUnserved    = "observer-unserved"    // runs that keep failing as unavailable
	ObserverOutside     = "observer-outside"     // an external service refuses its runs
	ObserverRepeating   = "observer-repeating"   // repeated runs for the same rows
	ObserverLoop        = "observer-loop"        // rows that set themselves off

	Unverified = "recovered-unverified" // recovered from a lost quorum, but not verified
)

// Kinds returns all kinds of findings.
func Kinds() []string {
	return []string{
		NodeAway, NodeSilent, NodeUnregistered, DrainBlocked, WritesRefused, DiskLow, StoreDamaged,
		ReplicaFailed, OldCopy, ClockOff, ClockSpeed, CertificateEnding, CertificateMismatch, RevokedDiffer,
		RolelessClient, VersionsMixed, UpgradeOpen, SettingsDiffer, MetaSilent, NoQuorum, NoLeader,
		TabletsMany, NoSpare, PlacementBlocked, HistoryHeld, BackupHeld, BackupLate, ExpiryLate, RestoreUnfinished,
		LockOld, ObserverUnlinked, ObserverPaused, ObserverBehind, ObserverParked, ObserverStuck,
		ObserverContended, ObserverUnserved, ObserverOutside, ObserverRepeating, ObserverLoop, Unverified,
	}
}

const (
	critical = pb.Severity_SEVERITY_CRITICAL
	warning  = pb.Severity_SEVERITY_WARNING
	info     = pb.Severity_SEVERITY_INFO
)

const (
	// clockWarn is the clock skew from which on it is a warning, clockCritical that from which on
	// it is critical. Locks live for 10 s, and a node that is 5 s off cannot join.
	clockWarn, clockCritical = 500 * time.Millisecond, 5 * time.Second
	// speedWarn and speedCritical are the same for the difference between the speeds of two clocks,
	// in parts per million. Leases assume a smaller difference than speedCritical
	// (liveness.MaxDrift). A synchronised clock stays below 1,000.
	speedWarn, speedCritical = 10_000, 100_000
	// lowDisk is four times the default free space below which a store refuses writes
	// (store.DefaultMinFreeBytes), in bytes.
	lowDisk = 2 << 30
	// oldLock is six times the default TTL after which others may resolve the lock of a dead
	// transaction.
	oldLock = time.Minute
	// behind is the age from which a pending notification is reported.
	behind = time.Minute
	// leaderless is the time without a leader that is reported; elections are shorter.
	leaderless = 3 * time.Second
	// oldHold is the age of a hold on old versions that is reported.
	oldHold = time.Hour
	// lateExpiry is the lag of expiry, beyond the time between two searches, that is reported.
	lateExpiry = 10 * time.Minute
	// manyTablets is the reported share of the policy's limit on tablets.
	manyTablets = 0.8
	// maxNamed bounds the tablets or nodes that one sentence names.
	maxNamed = 8
)

// Thresholds returns the values from which on findings are reported, keyed by the metric that
// the matching alert watches, in the metric's unit. Alerts use the same values.
func Thresholds() map[string]float64 {
	return map[string]float64{
		"percolator_observer_oldest_seconds":            behind.Seconds(),
		"percolator_tablet_oldest_lock_seconds":         oldLock.Seconds(),
		"percolator_tablets_leaderless_longest_seconds": leaderless.Seconds(),
		"percolator_clock_offset_seconds":               clockWarn.Seconds(),
		"percolator_tablets_limit_ratio":                manyTablets,
		"percolator_expiry_excess_lag_seconds":          lateExpiry.Seconds(),
	}
}

// examination is one pass over a cluster's status.
type examination struct {
	status   *pb.ClusterStatusResponse
	tablets  map[uint64]*pb.TabletDescriptor // the newest reported descriptor of each
	findings []*pb.Finding
}

// Examine returns the findings, the worst first, and how many more nodes, whichever they are,
// may fail without a tablet losing its quorum; -1 if some tablet has none now, 0 if no tablet is
// known. tablets is the tablet map, which also lists tablets whose nodes are all away.
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
	e.clockSpeeds()
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
	e.expiry()
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

// learn keeps the descriptor if it is newer than the known one of its tablet.
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

// since returns the age of a timestamp by the answering node's clock.
func (e *examination) since(ts uint64) time.Duration {
	return time.UnixMilli(e.status.GetUnixMs()).Sub(time.UnixMilli(mvcc.Timestamp(ts).Millis()))
}

// nodeName names the node by its address for clients, or by its id if it has none.
func nodeName(n *pb.Node) string {
	if n.GetListen() == "" {
		return fmt.Sprintf("node %d", n.GetNodeId())
	}
	return "node " + n.GetListen()
}

// plural returns "1 tablet" or "3 tablets".
func plural[N int | uint32 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// list names the first maxNamed ids.
func list(ids []uint64) string {
	var names []string
	for _, id := range ids {
		names = append(names, fmt.Sprint(id))
	}
	return join(names)
}

// join names the first maxNamed names.
func join(names []string) string {
	text := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if more := len(names) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
