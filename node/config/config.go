package config

import (
	"log/slog"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/rpc"
)

// Limits bounds the sizes of rows, columns, values and batches, in bytes.
type Limits struct {
	Row    int // of a row's name. Defaults to 4 KiB, at most 4 KiB
	Column int // of a column's name. Defaults to 1 KiB, at most 1 KiB
	Value  int // of a value. Defaults to 4 MiB, at most 6 MiB
	Batch  int // of all rows, columns and values of one operation. Defaults to 8 MiB, at most 8 MiB
	Inline int // longer values are stored apart from their cells. Defaults to 1 KiB, at most 64 KiB
}

// Config configures a node. Start from DefaultConfig; the zero value is not valid. node.Open reads
// a Config once; it may be changed afterwards.
type Config struct {
	// Dir is the directory of the store and the node's identity. It is created if missing and locked
	// while the node runs. It is required, except with Store.InMemory, which excludes it.
	Dir string
	// LogDir is the directory of the Raft log, outside of Dir, for example on a device of its own;
	// default: inside Dir. Dir and LogDir belong together: a restart needs both. To move the log,
	// stop the node, move the directory's files and set the new path.
	LogDir string
	// Listen is the host:port of the gRPC listener for remote clients. With port 0 it and the
	// listeners with AutoPort pick free ports. If empty, the node serves its own process only, and
	// HTTP must not be AutoHTTP.
	Listen string
	// Advertise is the host:port announced to clients and other nodes; default: the bound address,
	// or for a wildcard address one of this machine's. Its host is also announced for the other
	// listeners, each with its own port.
	Advertise string
	// Peer is the host:port for traffic between nodes; AutoPort is the port after Listen's. If empty,
	// the node runs alone.
	Peer string
	// Gossip is the host:port for gossip, TCP and UDP; AutoPort is the second port after Listen's. If
	// empty, the node runs alone.
	Gossip string
	// Join lists the Listen addresses of nodes to join, host or host:port. A node with an empty
	// directory waits for one of them without limit, unless it founds a cluster (Expect); a member
	// of a cluster contacts them, too, when it starts.
	Join []string
	// Expect is the number of fresh nodes with the same Join that found a cluster together. Values
	// below 2 disable this.
	Expect int
	// Replicas is the target number of replicas of a tablet: 1, 3 or 5; default 3. With fewer nodes
	// the target is the largest odd number that fits. It sets the policy of a new cluster, see
	// Given.
	Replicas int
	// HTTP is the host:port of the HTTP listener; AutoHTTP is the third port after Listen's. If
	// empty, the node serves no HTTP.
	HTTP string
	// HTTPHosts are additional host names for which HTTP answers, next to localhost, IP addresses, the
	// hosts of Listen, Advertise and HTTP, and those in the node's certificate. Requests for other
	// hosts are refused, which prevents DNS rebinding.
	HTTPHosts []string
	// HTTPTLS serves HTTP over TLS with the node's certificate. Clients need no certificate; one with
	// the operator's role authorizes actions. HTTP may then be a non-loopback address, but AutoHTTP
	// stays a loopback one.
	HTTPTLS bool
	// HTTPLogin makes HTTP require a login, except for health checks. It sets the policy of a new
	// cluster, see Given.
	HTTPLogin bool
	// Gateway is the host:port of the gateway, for programs in any language; AutoPort is the fourth port
	// after Listen's. It uses the node's certificates, or plain text with Insecure. If empty, which
	// is the default, the node has no gateway.
	Gateway string
	// GatewayOrigins are the origins of web pages that may call the gateway, such as
	// https://app.example; "*" allows all. Pages of other origins are refused.
	GatewayOrigins []string
	// Trace configures the export of traces.
	Trace Trace
	// Pprof serves profiles of the process over HTTP under /debug/pprof/.
	Pprof bool
	// Labels describe the node, such as zone=a: at most 8, with keys and values of at most 64 bytes.
	Labels map[string]string
	// Certs is the directory of the node's certificates and gossip keys, as created by `percolator
	// cert`.
	Certs string
	// Insecure serves plain text without authentication, on loopback addresses only.
	Insecure bool
	// InsecureForce lifts Insecure's restriction to loopback addresses.
	InsecureForce bool
	// InsecureHTTP allows a node with Certs to serve HTTP, which is unauthenticated plain text without
	// HTTPTLS, on a non-loopback address.
	InsecureHTTP bool
	// Logger receives the node's log; nil discards it.
	Logger *slog.Logger
	// LogLevel is the level of Logger's handler, which operators can change at run time; nil means
	// fixed.
	LogLevel *slog.LevelVar
	// History is the time for which old versions stay readable; default 10 min. It sets the policy
	// of a new cluster, see Given. Every observer's deadline must be shorter than the cluster's
	// history (design section 4); node.Open checks that.
	History time.Duration
	// Batch configures the batching of each kind of actor.
	Batch Batch
	// Scanners is the number of goroutines that scan for dirty cells (§2.4); default 2, 0 disables
	// scanning.
	Scanners int
	// ObserverWorkers is the number of concurrent observer runs on this node; 0 disables observers.
	// Default DefaultObserverWorkers: runs mostly wait for reads and for the disk, so the number may
	// be far above the number of processors.
	ObserverWorkers int
	// ObserverLoopRuns is the number of runs of one row within 10 s, each caused by the last, after which
	// further ones wait, each twice as long as the last, up to 10 s. Default 100; -1 disables it.
	ObserverLoopRuns int
	// Observers registers the program's observers (§2.4); nil means none.
	Observers func(*percolator.Registry)

	// Given lists the policy settings (Replicas, History, HTTPLogin, parts of Collection, Splits
	// and Placement) that were set explicitly, by their names in `percolator cluster set`. They
	// define the policy of a new cluster. If an existing cluster's policy differs, it prevails and
	// the node logs the difference. Fields that differ from DefaultConfig count as given.
	Given []string

	// Limits bounds rows, columns, values and batches (design section 2).
	Limits Limits
	// LockTTL is the lifetime of a transaction's locks after its last heartbeat, by oracle time;
	// default 10 s.
	LockTTL time.Duration
	// DrainTimeout bounds the drain by node.Run and by the command line; that by a call of
	// Node.Close or Node.Drain ends with the call's context. Default 30 s.
	DrainTimeout time.Duration
	// MaxClockAhead limits the lead of this node's clock over the median of the other nodes' while
	// it issues timestamps; beyond it the node transfers meta's leadership if another node can take
	// it (design section 6). A fresh node whose clock differs by more in either direction neither
	// joins nor founds a cluster. Default 5 s: synchronised clocks differ by
	// milliseconds.
	MaxClockAhead time.Duration
	// Notifications configures the search for dirty cells (§2.4).
	Notifications Notifications
	// Collection configures the collection of old versions.
	Collection Collection
	// Splits configures automatic splits and merges of tablets.
	Splits Splits
	// Placement configures the placement of replicas and leaders.
	Placement Placement
	// Snapshots limits the snapshots sent to other nodes.
	Snapshots Snapshots
	// Memory is the memory budget of the process in bytes, at least 256 MiB. The store's caches are
	// sized from it, and the command line sets Go's memory limit to a part of it. Default: the
	// cgroup's limit, or the machine's memory.
	Memory uint64
	// Store configures the embedded store.
	Store Store
}

// Trace configures the export of OpenTelemetry spans. The environment variables
// OTEL_EXPORTER_OTLP_* and OTEL_RESOURCE_ATTRIBUTES add headers, certificates and attributes.
type Trace struct {
	// Endpoint is the URL of an OTLP collector that accepts gRPC, such as http://127.0.0.1:4317;
	// https:// uses TLS. If empty, tracing is off.
	Endpoint string
	// Sample is the sampling ratio, from 0 to 1, of traces that begin on this node: transactions of
	// its own process, and observer runs for changes without a trace; at most 200 per second. Traces
	// sampled by clients are always kept. Default 0.01.
	Sample float64
}

// Snapshots limits the snapshots that a node sends to new replicas and to replicas behind the log
// (design section 5). Zero fields use the defaults of actors/tablet/snapshot.
type Snapshots struct {
	// Rate limits all snapshots of the node together, in bytes per second, at least 64 KiB; default
	// 64 MiB.
	Rate uint64
	// AtOnce is the number of concurrent snapshots, at most 64; default 2. Others wait.
	AtOnce int
}

// Splits configures automatic splits and merges of tablets (design section 5). Zero fields use the
// defaults of actors/splitter.
type Splits struct {
	// MaxBytes is the size above which a tablet is split into halves of equal size; default 96 MiB.
	MaxBytes uint64
	// MaxLoad is the load above which a tablet is split into halves of equal load, in operations per
	// second; default 250,000.
	MaxLoad uint64
	// Interval is the time between checks; default 10 s.
	Interval time.Duration
	// MaxTablets bounds the number of tablets in the cluster; default 1024. Like MaxBytes, MaxLoad and
	// Off it sets the policy of a new cluster.
	MaxTablets int
	// MergeAfter is the time for which two neighboring tablets must have been small before they are
	// merged; default 5 min. Unused ones, such as those of a dropped table, are merged at once.
	MergeAfter time.Duration
	// Off disables automatic splits and merges.
	Off bool
}

// Placement configures the placement of replicas and leaders (design section 9). Zero fields use
// the defaults of actors/placement.
type Placement struct {
	// GoneAfter is the downtime after which a node's replicas are recreated on other nodes; default
	// 5 min. Like ForgetAfter it sets the policy of a new cluster, see Config.Given.
	GoneAfter time.Duration
	// ForgetAfter is the downtime after which the record of a node without replicas is removed; its
	// directory cannot rejoin after that. Default 24 h.
	ForgetAfter time.Duration
	// Interval is the time between turns without work; default 5 s.
	Interval time.Duration
	// Busy is the time between turns with work; default 250 ms.
	Busy time.Duration
	// Rest is the least time between two balancing moves of one tablet; default 1 min.
	Rest time.Duration
	// Off disables placement.
	Off bool
}

// Collection configures the collection of old versions (design section 4). Zero fields use the
// defaults.
type Collection struct {
	// Interval is the time between collections; default a tenth of History, at most 10 s.
	Interval time.Duration
	// ForceAfter is the time for which collection waits for a live transaction older than History
	// before it rolls it back; default History, at most 1 min.
	ForceAfter time.Duration
	// MaxHold is the age up to which an open snapshot or a backup's hold prevents collection;
	// default ten times History. Like Off it sets the policy of a new cluster, see Config.Given.
	MaxHold time.Duration
	// Off disables collection: the store grows with every write.
	Off bool
}

// BatchConfig configures the batching of one kind of actor. A zero field selects its default.
type BatchConfig struct {
	// MaxMessages is the maximum number of messages in a batch.
	MaxMessages int
	// MaxBytes is the total size of its messages, in bytes, at which a batch is complete.
	MaxBytes int
	// Linger is the time for which a batch waits for more messages. Defaults to 0.
	Linger time.Duration
	// QueueLimit is the maximum number of unanswered calls; further ones fail with ErrOverloaded.
	QueueLimit int
}

// Batch holds the BatchConfig of each kind of actor.
type Batch struct {
	Tablet BatchConfig // operations on one tablet
	Oracle BatchConfig // requests for timestamps
	Log    BatchConfig // appends and applies of all tablets of the node
	Lockd  BatchConfig // advisory row locks
	// Client has no effect, which Open logs if it is set: a node's own client sends each operation
	// straight to an actor's mailbox, which batches it, and clients that Dial use
	// percolator.ClientConfig.Batch.
	Client BatchConfig
}

// Notifications configures the search for dirty cells. Hints and lockd only save time: correctness
// must not depend on them.
type Notifications struct {
	// NoHints disables hints of tablet leaders to scanners about new notifications; scans find
	// them.
	NoHints bool
	// NoLockd disables advisory row locks in scanners.
	NoLockd bool
	// ScanPause is the pause of a scanner after the first scan that found nothing. Each further
	// empty scan doubles it, up to ScanPauseMax. Default 200 ms.
	ScanPause time.Duration
	// ScanPauseMax defaults to 1 s.
	ScanPauseMax time.Duration
	// ScanPage is the number of notifications per request; default 256.
	ScanPage int
	// Young is the age below which scanners leave a notification to its hint. 0 means 250 ms.
	Young time.Duration
	// FailurePause is the pause after the first failed run; it doubles up to FailurePauseMax. 0
	// means 100 ms and 1 min.
	FailurePause, FailurePauseMax time.Duration
}

// Store configures the embedded store.
type Store struct {
	// InMemory keeps nothing on disk: all data is lost when the node closes.
	InMemory bool
	// MemTableSize is the size of Badger's memtable in bytes. Default: derived from Memory, at most
	// 32 MiB.
	MemTableSize int64
	// MinFreeBytes is the free disk space below which the node refuses writes. 0 means 512 MiB.
	MinFreeBytes uint64
}

// Defaults shared with other packages.
const (
	// DefaultListen is the default address of a node's listener for clients, and of the command
	// line's flag --addr.
	DefaultListen = "127.0.0.1:" + DefaultPort
	// DefaultPort is the port of addresses in Join, and of percolator.Dial, without one.
	DefaultPort = rpc.DefaultPort
	// AutoPort derives a listener's address from Listen: the same host, and the port plus 1 for Peer,
	// 2 for Gossip, 3 for HTTP, 4 for Gateway; a free port if Listen's is 0.
	AutoPort = "auto"
	// DefaultObserverWorkers is the number above which throughput on two processors no longer grows
	// (`go run ./bench -only clustering`), since runs share each disk sync. More workers cost memory,
	// and conflicts between runs that write the same cells.
	DefaultObserverWorkers = 128
	// DefaultObserverLoopRuns is far above the number of runs after which observers that set each
	// other off for a row normally stop.
	DefaultObserverLoopRuns = 100
	// AutoHTTP is AutoPort.
	AutoHTTP = AutoPort
)

// DefaultConfig returns the default configuration. The caller must set Dir and either Certs or
// Insecure.
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
		ObserverWorkers: DefaultObserverWorkers, ObserverLoopRuns: DefaultObserverLoopRuns,
		Limits:        Limits(mvcc.DefaultLimits()),
		LockTTL:       10 * time.Second,
		DrainTimeout:  30 * time.Second,
		MaxClockAhead: 5 * time.Second,
		Trace:         Trace{Sample: 0.01},
		Notifications: Notifications{ScanPause: 200 * time.Millisecond, ScanPage: 256},
	}
}
