package config

import (
	"log/slog"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/rpc"
)

// Limits are the most bytes of rows, columns, values and batches.
type Limits = mvcc.Limits

// Config is what one node can be told. Begin with DefaultConfig; the zero value is not
// valid. A Config is read once, by node.Open, and may be changed afterwards.
type Config struct {
	// Dir holds the store and the node's identity. It is created when missing, and locked
	// while the node runs. Empty only with Store.InMemory.
	Dir string
	// LogDir holds the Raft log, such as on a device of its own; empty: it is inside of
	// Dir. It belongs to Dir for good: both are needed to start the node again. To move
	// the log, stop the node, move the directory's files and name the new one.
	LogDir string
	// Listen is the host:port of the gRPC listener for remote clients. With port 0 every
	// listener picks a free port. Empty: no listener, the node serves its own process
	// only; HTTP must not be AutoHTTP then.
	Listen string
	// Advertise is the host:port that clients and other nodes are told; empty: the
	// address that was bound. Its host is told for the other listeners as well, each with
	// its own port.
	Advertise string
	// Peer is the host:port for traffic between nodes, AutoPort for the port after
	// Listen's, or empty: the node stays alone.
	Peer string
	// Gossip is the host:port for gossip, TCP and UDP; AutoPort for the second port after
	// Listen's, or empty: the node stays alone.
	Gossip string
	// Join lists the Listen addresses of nodes to join, host or host:port. A node whose
	// directory is empty waits for one of them as long as it takes; one that belongs to a
	// cluster finds the others through them if it cannot by itself.
	Join []string
	// Expect is how many fresh nodes with the same Join begin one cluster together; at
	// most 1: none.
	Expect int
	// Replicas is the target number of replicas of a tablet: 1, 3 or 5. Fewer nodes hold
	// the largest odd number that fits. Of a new cluster's policy, as History and others:
	// see Given.
	Replicas int
	// HTTP is the host:port of the HTTP listener, AutoHTTP for the third port after
	// Listen, or empty for none.
	HTTP string
	// HTTPHosts are names under which HTTP answers, besides localhost, addresses, the
	// hosts of Listen, Advertise and HTTP, and those in the node's certificate. Others
	// are refused: a site that a browser visits could read the node by a name of its own
	// (DNS rebinding).
	HTTPHosts []string
	// HTTPTLS serves HTTP over TLS, with the node's certificate. Clients need none; who shows
	// an operator's may do what operators may.
	HTTPTLS bool
	// HTTPLogin has a cluster that this node founds answer over HTTP only who has logged in,
	// except for health: a setting of its policy.
	HTTPLogin bool
	// Trace is where traces go, and how many.
	Trace Trace
	// Pprof also serves profiles of the process over HTTP, under /debug/pprof/.
	Pprof bool
	// Labels describe the node, such as zone=a. Keys and values are at most 64 bytes, 8
	// of them at most.
	Labels map[string]string
	// Certs is the folder of the node's certificates and gossip keys, as `percolator
	// cert` makes it.
	Certs string
	// Insecure serves plain text without authentication, on loopback addresses only.
	Insecure bool
	// InsecureForce lifts Insecure's restriction to loopback addresses.
	InsecureForce bool
	// InsecureHTTP lets a node with Certs serve HTTP, which is plain text for everybody,
	// on an address that others reach.
	InsecureHTTP bool
	// Logger receives the node's log; nil discards it.
	Logger *slog.Logger
	// LogLevel is what Logger's handler goes by, so that operators can change it; nil: they
	// cannot.
	LogLevel *slog.LevelVar
	// History is how long old versions stay readable, of a new cluster's policy. Every
	// observer's deadline must be shorter than the cluster's history (invariant 11 of
	// design section 4); node.Open checks that.
	History time.Duration
	// Batch tunes mailbox coalescing per kind of actor.
	Batch Batch
	// Scanners is how many goroutines look for dirty cells (§2.4); 0: none, the node runs
	// no observer by scanning.
	Scanners int
	// ObserverWorkers is how many observers run at once on this node; 0: none. Runs wait
	// for reads and for the disk most of the time, so there are many more than
	// processors: default DefaultObserverWorkers.
	ObserverWorkers int
	// Observers registers the observers that this program links; nil: none (§2.4).
	Observers func(*percolator.Registry)

	// Given names settings of the cluster's policy (Replicas, History, some of
	// Collection, Splits and Placement) that were given on purpose, as `percolator
	// cluster set` calls them. They found a new cluster's policy; where an existing
	// cluster's differs, the node says so in its log and goes by that. A field with
	// another value than DefaultConfig's needs no mention.
	Given []string

	// Limits bounds rows, columns, values and batches (design section 2).
	Limits Limits
	// LockTTL is how long a transaction's locks live after its last sign of life, by oracle time.
	LockTTL time.Duration
	// DrainTimeout bounds how long Drain waits for observers and background commits.
	DrainTimeout time.Duration
	// MaxClockAhead is how far this node's clock may be ahead of the others' median for
	// it to give timestamps; beyond it the node has another lead meta, if there is one
	// (design section 6). A fresh node whose clock differs from the others' by more,
	// either way, neither joins nor founds a cluster. Some seconds: a clock that is kept
	// is off by milliseconds.
	MaxClockAhead time.Duration
	// Notifications tunes how dirty cells are found (§2.4).
	Notifications Notifications
	// Collection tunes how history is bounded.
	Collection Collection
	// Splits tunes when tablets are split by themselves.
	Splits Splits
	// Placement tunes where replicas are and which of them lead.
	Placement Placement
	// Snapshots bounds what tablets' states cost that are sent to replicas.
	Snapshots Snapshots
	// Memory is how many bytes the process may take: the store's sizes follow from it,
	// and the command line holds Go's heap to a part of it. 0: the limit of the process's
	// cgroup, else the machine's memory.
	Memory uint64
	// Store tunes the embedded store.
	Store Store
}

// Trace says where spans of OpenTelemetry go. OTEL_EXPORTER_OTLP_* and OTEL_RESOURCE_ATTRIBUTES
// of the environment add to it, such as headers and certificates.
type Trace struct {
	// Endpoint is the URL of an OTLP collector that is spoken to by gRPC, such as
	// http://127.0.0.1:4317; https:// uses TLS. Empty: nothing is traced.
	Endpoint string
	// Sample is the share of traces that are kept, from 0 to 1, of those that begin on
	// this node: transactions of its own process, and runs of observers for changes of
	// which no trace is known; at most 200 a second. What clients sample is kept anyway.
	Sample float64
}

// Snapshots bounds what it costs a node to send states of tablets to replicas that are
// new or have fallen behind the log (design section 5). Zero fields take the defaults of
// actors/tablet/snapshot.
type Snapshots struct {
	// Rate is how many bytes a second the node sends of all its snapshots together, at
	// least 64 KiB; default 64 MiB.
	Rate uint64
	// AtOnce is how many snapshots the node sends at once, at most 64; default 2. The others wait.
	AtOnce int
}

// Splits tunes when tablets are split by themselves (design section 5). Zero fields take
// the defaults of actors/splitter.
type Splits struct {
	// MaxBytes: a larger tablet is split where its size halves; default 96 MiB.
	MaxBytes uint64
	// MaxLoad: a tablet with more operations per second is split where its load halves;
	// default 250,000.
	MaxLoad uint64
	// Interval is how often tablets are looked at; default 10 s.
	Interval time.Duration
	// MaxTablets is the most tablets, however they are made; default 1024. Of a new
	// cluster's policy, as MaxBytes, MaxLoad and Off are.
	MaxTablets int
	// MergeAfter is how long two tablets of a table must have been small together before
	// they are merged; default 5 min.
	MergeAfter time.Duration
	// Off: tablets are split and merged on request only.
	Off bool
}

// Placement tunes where replicas are and which of them lead (design section 9). Zero
// fields take the defaults of actors/placement.
type Placement struct {
	// GoneAfter is how long a node may be away before its replicas are made anew
	// elsewhere; default 5 min.
	GoneAfter time.Duration
	// ForgetAfter is how long a node that holds no replica may be away before its record
	// is removed; its directory is not let in after that. Default 24 h.
	ForgetAfter time.Duration
	// Interval is how often the cluster is looked at when there is nothing to do; default 5 s.
	Interval time.Duration
	// Busy is how often otherwise; default 250 ms.
	Busy time.Duration
	// Rest is how long a tablet that was moved is not moved again for balance; default 1 min.
	Rest time.Duration
	// Off leaves all replicas where they are.
	Off bool
}

// Collection tunes how history is bounded (invariant 11 of design section 4). Zero fields
// take the defaults.
type Collection struct {
	// Interval is how often there is something to collect; default a tenth of History, at
	// most 10 s.
	Interval time.Duration
	// ForceAfter is how long a transaction that is older than History and still alive is
	// waited for before it is rolled back; default History, at most 1 min.
	ForceAfter time.Duration
	// MaxHold is the age up to which an open snapshot keeps history from being collected;
	// default ten times History.
	MaxHold time.Duration
	// Off collects nothing: the store grows with every write.
	Off bool
}

// Batch is one BatchConfig per kind of actor. Zero fields take actorkit's defaults.
type Batch struct {
	Tablet actorkit.BatchConfig // operations on one tablet
	Oracle actorkit.BatchConfig // requests for timestamps
	Log    actorkit.BatchConfig // appends and applies of all tablets of the node
	Lockd  actorkit.BatchConfig // advisory row locks
	// Client is for clients that Dial; a node's own hands each operation to its mailbox,
	// which is where it is batched.
	Client actorkit.BatchConfig
}

// Notifications tunes how dirty cells are found. Hints and lockd only save time:
// correctness must not depend on them.
type Notifications struct {
	// NoHints: tablet leaders do not tell scanners of new N entries; only scans find them.
	NoHints bool
	// DuplicateHints: every hint is given twice. For tests.
	DuplicateHints bool
	// NoLockd: scanners do not ask for advisory row locks.
	NoLockd bool
	// ScanPause is how long a scanner that found nothing rests before it scans again.
	ScanPause time.Duration
	// ScanPauseMax is how long that rest becomes when nothing is found again and again.
	// 0: the scanners' default, a second.
	ScanPauseMax time.Duration
	// ScanPage is how many N entries one message fetches.
	ScanPage int
	// Young is the age below which scanners leave a notification to its hint. 0: the
	// scanners' default.
	Young time.Duration
	// FailurePause and FailurePauseMax bound the pause after a failed run, which doubles
	// each time. 0: the observers' defaults.
	FailurePause, FailurePauseMax time.Duration
}

// Store tunes the embedded store.
type Store struct {
	// InMemory keeps nothing on disk; for tests.
	InMemory bool
	// MemTableSize is Badger's memtable in bytes. 0: what is right for the memory that
	// there is, at most 16 MiB.
	MemTableSize int64
	// MinFreeBytes is the watermark of free disk space below which the node stops taking
	// writes. 0: the store's default.
	MinFreeBytes uint64
	// SyncDelay is added after each sync; for benchmarks.
	SyncDelay time.Duration
}

// Defaults that others refer to.
const (
	// DefaultListen is where a node serves remote clients, and where a client looks for one.
	DefaultListen = "127.0.0.1:" + DefaultPort
	// DefaultPort is that of an address in Join that has none.
	DefaultPort = rpc.DefaultPort
	// AutoPort puts a listener on Listen's host, some ports up: Peer 1, Gossip 2, HTTP 3;
	// on a free port if Listen's is 0.
	AutoPort = "auto"
	// DefaultObserverWorkers is as many as gain throughput on two processors (`go run
	// ./bench -only clustering`): runs share the waiting for each sync of the disk. More
	// cost memory, and conflicts where runs write the same cells.
	DefaultObserverWorkers = 128
	// AutoHTTP is AutoPort.
	AutoHTTP = AutoPort
)

// DefaultConfig returns a configuration that lacks only Dir and one of Certs and Insecure.
func DefaultConfig() Config {
	return Config{
		Listen:          DefaultListen,
		Peer:            AutoPort,
		Gossip:          AutoPort,
		Expect:          1,
		Replicas:        3,
		HTTP:            AutoHTTP,
		History:         10 * time.Minute,
		Scanners:        2,
		ObserverWorkers: DefaultObserverWorkers,
		Limits:          mvcc.DefaultLimits(),
		LockTTL:         10 * time.Second,
		DrainTimeout:    30 * time.Second,
		MaxClockAhead:   5 * time.Second,
		Trace:           Trace{Sample: 0.01},
		Notifications:   Notifications{ScanPause: 200 * time.Millisecond, ScanPage: 256},
	}
}
