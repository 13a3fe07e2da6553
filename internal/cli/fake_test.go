package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/admin"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node/config"
)

// fakeCluster is a Transport with prepared answers. An answer that the test does not set is empty.
type fakeCluster struct {
	txn.Transport            // nil: a method that no command should call panics
	mu            sync.Mutex // held while a mutation is answered
	tables        []*pb.Table
	tablets       []*pb.TabletDescriptor
	clients       *pb.ClientsResponse
	catalogue     *pb.Catalogue
	status        *pb.NodeStatusResponse
	nodes         []*pb.Node
	history       []*pb.HistoryEntry
	// rows overrides history for single rows, such as those of primaries.
	rows      map[string][]*pb.HistoryEntry
	observers []*pb.ObserverState
	drain     []*pb.Node     // node 2, one for each request for nodes; the last one repeats
	backfills []*pb.Backfill // the answers, one after the other; the last one repeats
	now       mvcc.Timestamp // the oracle's next timestamp
	// mutate answers mutations; nil: none is expected.
	mutate func(*pb.TabletRequest) *pb.MutationResult
	// sent records mutations and administrative requests, in order.
	sent []proto.Message
	// walked answers a walk; nil: no entries.
	walked func(*pb.WalkRequest) *pb.WalkResponse
	// scanned answers a scan; nil: none is expected.
	scanned func(*pb.ScanRequest) *pb.ScanResponse
	// verified answers the comparison of a tablet's replicas; nil: they are equal.
	verified  func(tablet uint64) (*pb.VerifyTabletResponse, error)
	wide      bool  // rows exceed an answer's maximum unless cells are requested
	fail      error // every method returns it
	whole     *pb.ClusterStatusResponse
	run       *pb.ObserverRun
	policy    *pb.Policy // nil: an empty one
	schedules []*pb.BackupSchedule
	noMeta    string // why meta does not answer; empty: it does
	hang      bool   // NodeStatus blocks until its context ends
}

func (f *fakeCluster) Send(_ context.Context, _ *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if f.fail != nil {
		return nil, f.fail
	}
	switch {
	case req.GetHistory() != nil:
		entries, special := f.rows[string(req.GetHistory().Row)]
		if !special {
			entries = f.history
		}
		if f.wide && len(req.GetHistory().Cells) == 0 {
			entries = entries[:1]
		}
		// bounded as by a tablet; all groups count as one here
		if limit := int(req.GetHistory().Limit); limit > 0 {
			entries = entries[:min(limit, len(entries), mvcc.MaxHistory+1)]
		}
		return &pb.TabletResponse{
			Result: &pb.TabletResponse_History{History: &pb.HistoryResponse{Entries: entries}},
		}, nil
	case req.GetWalk() != nil:
		page := &pb.WalkResponse{Done: true}
		if f.walked != nil {
			page = f.walked(req.GetWalk())
		}
		return &pb.TabletResponse{Result: &pb.TabletResponse_Walk{Walk: page}}, nil
	}
	if req.GetScan() != nil && f.scanned != nil {
		return &pb.TabletResponse{
			Result: &pb.TabletResponse_Scan{Scan: f.scanned(req.GetScan())},
		}, nil
	}
	if f.mutate == nil {
		return nil, fmt.Errorf("unexpected operation %T", req.Op)
	}
	if r := req.GetResolveLock(); r.GetCommitTs() != 0 { // as nodes admit it
		for _, c := range r.Cells {
			if mvcc.Class(c.Class) == mvcc.ClassAck {
				return &pb.TabletResponse{Error: &pb.Error{Code: pb.Error_CODE_PERMISSION}}, nil
			}
		}
	}
	f.mu.Lock() // a command may send to several tablets at once
	defer f.mu.Unlock()
	f.sent = append(f.sent, &pb.TabletRequest{Op: req.Op})
	return &pb.TabletResponse{Result: &pb.TabletResponse_Mutation{Mutation: f.mutate(req)}}, nil
}

func (f *fakeCluster) Timestamps(context.Context, int) (mvcc.Timestamp, int, error) {
	if f.now == 0 {
		f.now = mvcc.TimestampAt(1000)
	}
	f.now++ // strictly increasing, as clients require
	return f.now, 1, f.fail
}

func (f *fakeCluster) Observers(context.Context) ([]*pb.ObserverState, error) {
	return f.observers, f.fail
}

func (f *fakeCluster) Locate(_ context.Context, table mvcc.TableID, row string,
	limit int) ([]*pb.TabletDescriptor, error) {
	for i, d := range f.tablets {
		if d.EndUnbounded || mvcc.TableID(d.EndTable) > table ||
			(mvcc.TableID(d.EndTable) == table && string(d.EndRow) > row) {
			return f.tablets[i:min(len(f.tablets), i+limit)], f.fail
		}
	}
	return nil, f.fail
}

func (f *fakeCluster) Tables(context.Context) ([]*pb.Table, error) {
	if f.noMeta != "" {
		return nil, &txn.ServerError{Code: pb.Error_CODE_UNAVAILABLE, Message: f.noMeta}
	}
	return f.tables, f.fail
}
func (f *fakeCluster) Catalogue(context.Context) (*pb.Catalogue, error) {
	return f.catalogue, f.fail
}
func (f *fakeCluster) WorkerDead(context.Context, mvcc.Worker) bool { return false }
func (f *fakeCluster) Worker() mvcc.Worker {
	return mvcc.Worker{}
}
func (f *fakeCluster) Close() error                                          { return nil }
func (f *fakeCluster) SplitTablet(context.Context, string, string) error     { return f.fail }
func (f *fakeCluster) DropTable(context.Context, string, mvcc.TableID) error { return f.fail }
func (f *fakeCluster) NodeStatus(ctx context.Context) (*pb.NodeStatusResponse, error) {
	if f.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return f.status, f.fail
}
func (f *fakeCluster) HoldHistory(_ context.Context,
	req *pb.HoldHistoryRequest) (*pb.HoldHistoryResponse, error) {
	return &pb.HoldHistoryResponse{TtlMs: req.TtlMs}, f.fail
}
func (f *fakeCluster) CreateTable(_ context.Context, req *pb.CreateTableRequest) (*pb.Table, error) {
	return &pb.Table{Id: 16, Name: req.Name}, f.fail
}

// AdminConn implements txn.Transport.
func (f *fakeCluster) AdminConn() grpc.ClientConnInterface {
	return admin.Conn(fakeAdmin{fakeCluster: f})
}

// fakeAdmin is a fakeCluster's administration.
type fakeAdmin struct {
	pb.UnimplementedAdminServer
	*fakeCluster
}

func (f fakeAdmin) ControlObserver(_ context.Context,
	req *pb.ControlObserverRequest) (*pb.ControlObserverResponse, error) {
	f.sent = append(f.sent, req)
	o := inspect.FindObserver(f.catalogue, req.Name)
	if o == nil {
		return nil, &txn.ServerError{
			Code: pb.Error_CODE_INVALID, Message: "no observer " + req.Name,
		}
	}
	info := &pb.ObserverInfo{
		Name: o.Name, Paused: req.GetPaused(), Limit: req.GetLimit(), Retired: req.Retire,
	}
	return &pb.ControlObserverResponse{Info: info}, f.fail
}

func (f fakeAdmin) Backfill(_ context.Context,
	req *pb.BackfillRequest) (*pb.BackfillResponse, error) {
	f.sent = append(f.sent, req)
	if len(f.backfills) == 0 {
		return &pb.BackfillResponse{}, f.fail
	}
	b := f.backfills[0]
	if len(f.backfills) > 1 {
		f.backfills = f.backfills[1:]
	}
	return &pb.BackfillResponse{Backfill: b}, f.fail
}

func (f fakeAdmin) Nodes(_ context.Context, req *pb.NodesRequest) (*pb.NodesResponse, error) {
	out := &pb.NodesResponse{Nodes: f.nodes, Unavailable: f.noMeta, AgeMs: 65_000}
	if len(f.drain) > 0 {
		out.Nodes = f.drain[:1]
		f.drain = f.drain[min(1, len(f.drain)-1):]
	}
	if req.Leaders && f.noMeta == "" {
		out.Leaders = []*pb.TabletLeader{{TabletId: 1, NodeId: 1}, {TabletId: 3, NodeId: 2}}
	}
	return out, f.fail
}

func (f fakeAdmin) ClusterStatus(context.Context,
	*pb.ClusterStatusRequest) (*pb.ClusterStatusResponse, error) {
	if f.whole != nil { // any node can answer, whatever fails
		return f.whole, nil
	}
	return nil, f.fail
}

func (f fakeAdmin) ObserverRun(context.Context,
	*pb.ObserverRunRequest) (*pb.ObserverRunResponse, error) {
	return &pb.ObserverRunResponse{Run: f.run}, f.fail
}

func (f fakeAdmin) Clients(context.Context, *pb.ClientsRequest) (*pb.ClientsResponse, error) {
	return f.clients, f.fail
}

func (f fakeAdmin) DisconnectClient(_ context.Context,
	req *pb.DisconnectClientRequest) (*pb.DisconnectClientResponse, error) {
	f.sent = append(f.sent, req)
	return &pb.DisconnectClientResponse{Closed: 2, Unavailable: []string{"node 3: silent"}}, f.fail
}

func (f fakeAdmin) DescribeProcess(_ context.Context,
	req *pb.DescribeProcessRequest) (*pb.DescribeProcessResponse, error) {
	return &pb.DescribeProcessResponse{Content: []byte(req.GetKind().String())}, f.fail
}

func (f fakeAdmin) ReportJob(context.Context, *pb.ReportJobRequest) (*pb.ReportJobResponse, error) {
	return &pb.ReportJobResponse{}, f.fail
}

func (f fakeAdmin) HoldBackup(_ context.Context,
	req *pb.HoldBackupRequest) (*pb.HoldBackupResponse, error) {
	for _, r := range req.Release {
		if r.Backup != "20261122T221500.123Z-full" || len(r.Token) > 0 {
			return nil, fmt.Errorf("no history is held for a backup %q", r.Backup)
		}
	}
	return &pb.HoldBackupResponse{}, f.fail
}

func (f fakeAdmin) SetLogLevel(context.Context,
	*pb.SetLogLevelRequest) (*pb.SetLogLevelResponse, error) {
	return &pb.SetLogLevelResponse{Before: "INFO"}, f.fail
}

func (f fakeAdmin) DrainNode(_ context.Context,
	req *pb.DrainNodeRequest) (*pb.DrainNodeResponse, error) {
	f.sent = append(f.sent, req)
	return &pb.DrainNodeResponse{Node: &pb.Node{NodeId: req.NodeId}}, f.fail
}

func (f fakeAdmin) MergeTablets(_ context.Context,
	req *pb.MergeTabletsRequest) (*pb.MergeTabletsResponse, error) {
	f.sent = append(f.sent, req)
	return &pb.MergeTabletsResponse{Tablet: &pb.TabletDescriptor{TabletId: 7}}, f.fail
}

func (f fakeAdmin) MoveTablet(_ context.Context,
	req *pb.MoveTabletRequest) (*pb.MoveTabletResponse, error) {
	f.sent = append(f.sent, req)
	return &pb.MoveTabletResponse{}, f.fail
}

func (f fakeAdmin) BackupSchedules(_ context.Context,
	req *pb.BackupSchedulesRequest) (*pb.BackupSchedulesResponse, error) {
	f.sent = append(f.sent, req)
	return &pb.BackupSchedulesResponse{Schedules: f.schedules}, f.fail
}

func (f fakeAdmin) ClusterPolicy(_ context.Context,
	req *pb.ClusterPolicyRequest) (*pb.ClusterPolicyResponse, error) {
	f.sent = append(f.sent, req)
	policy := req.Set
	if policy == nil {
		policy = cmp.Or(f.policy, &pb.Policy{})
	}
	return &pb.ClusterPolicyResponse{Policy: policy}, f.fail
}

func (f fakeAdmin) FinalizeUpgrade(_ context.Context,
	req *pb.FinalizeUpgradeRequest) (*pb.FinalizeUpgradeResponse, error) {
	f.sent = append(f.sent, req)
	return &pb.FinalizeUpgradeResponse{
		Agreed: &pb.ClusterVersion{Minimum: 3, Active: 3}, Changed: true,
	}, f.fail
}

func (f fakeAdmin) ForgetNode(_ context.Context,
	req *pb.ForgetNodeRequest) (*pb.ForgetNodeResponse, error) {
	f.sent = append(f.sent, req)
	return &pb.ForgetNodeResponse{}, f.fail
}

// bankCluster is a cluster of one node with the table bank, split at row m, and two observers.
func bankCluster() *fakeCluster {
	return &fakeCluster{
		schedules: []*pb.BackupSchedule{
			{
				Name: "hourly", Location: "/mnt/b", FirstUnixMs: 1769860800000, EveryMs: 3600_000, FullEveryMs: 86400_000,
				KeepMs: 30 * 86400_000, Error: "no room",
			},
			{
				Name: "nightly", Location: "s3://b", FirstUnixMs: 1769860800000, EveryMs: 86400_000, Rate: 8 << 20,
				SuccessUnixMs: 1769860801000, TriedUnixMs: 1769860800500, Backup: "20260131T120001.000Z-full",
			},
		},
		tables: []*pb.Table{{Id: 16, Name: "bank", SplitKeys: [][]byte{[]byte("m")}}},
		nodes: []*pb.Node{
			{
				NodeId: 1, Incarnation: 3, Listen: "127.0.0.1:7800",
				State: pb.NodeState_NODE_STATE_ACTIVE, Alive: true, LeadsMeta: true,
				Labels: map[string]string{"zone": "a"}, Replicas: 3, Leaders: 2, SizeBytes: 3 << 20,
				Load: 120, DiskFree: 9 << 30, Version: "v1",
			},
			{NodeId: 2, Incarnation: 1, Listen: "127.0.0.1:7900",
				State: pb.NodeState_NODE_STATE_DRAINING, Version: "v1"},
			{NodeId: 5, Incarnation: 1, Listen: "127.0.0.1:8000", Alive: true},
		},
		tablets: []*pb.TabletDescriptor{
			{TabletId: 1, Epoch: 1, EndTable: 16,
				Replicas: []*pb.Replica{{ReplicaId: 1, NodeId: 1}}},
			{TabletId: 2, Epoch: 3, StartTable: 16, EndTable: 16, EndRow: []byte("m"),
				Replicas: []*pb.Replica{{ReplicaId: 1, NodeId: 1}}},
			{TabletId: 3, Epoch: 2, StartTable: 16, StartRow: []byte("m"), EndUnbounded: true,
				Replicas: []*pb.Replica{{ReplicaId: 1, NodeId: 1}}},
		},
		catalogue: &pb.Catalogue{Version: 2, Observers: []*pb.ObserverInfo{
			{Name: "count", Table: 16, TableName: "bank", Column: []byte("bal")},
			{Name: "mail", Table: 16, TableName: "bank", Column: []byte("letter\x00"), Weak: true},
		}},
		observers: []*pb.ObserverState{
			{Info: &pb.ObserverInfo{
				Name: "mail", Table: 16, TableName: "bank", Column: []byte("letter\x00"),
				Weak: true,
			}, Intents: 1},
			{Info: &pb.ObserverInfo{
				Name: "count", Table: 16, TableName: "bank", Column: []byte("bal"),
			}, Linked: true,
				Notifications: 3, Parked: 1, OldestTs: uint64(mvcc.TimestampAt(400)),
				Status: &pb.ObserverStatus{
					Name: "count", Runs: 12, Commits: 10, Conflicts: 2, Running: 1, Limit: 8,
					Queued: 2,
				}},
		},
		status: &pb.NodeStatusResponse{
			ClusterId: "4f1c", NodeId: 1, Incarnation: 2, Version: "v0.1.0",
			Listen: "127.0.0.1:7800", Http: "127.0.0.1:7803",
			Tablets: []*pb.StatusResponse{
				{Tablet: &pb.TabletDescriptor{TabletId: 1}, Leader: true, Reads: 5, Mutations: 3,
					Batches: 4, AppliedIndex: 9},
				{Tablet: &pb.TabletDescriptor{TabletId: 2}, Leader: true, Locks: 2, Reads: 100,
					Mutations: 50, Batches: 21, Proposals: 20,
					SizeBytes: 3 << 20, Load: 120, Bound: 7, Safepoint: 6, Garbage: 5,
					Collected: 4},
			},
			Observers: []*pb.ObserverStatus{
				{Name: "count", Table: "bank", Column: []byte("bal"), Runs: 12, Commits: 10,
					Conflicts: 2, Running: 1},
			},
			History: &pb.HistoryStatus{
				Bound: 7, Safepoint: 6, Collected: 4, Holds: 1,
				BlockedBy: "a lock of transaction 5",
			},
			DiskUsed: 3 << 20, DiskFree: 5 << 30,
			OracleLast: 1 << 18, OracleServed: 30, OracleBatches: 10, LogBatches: 8,
			LogRequests: 20,
			Log: &pb.LogStatus{
				Dir: "/fast/log", DiskFree: 1 << 30, Segments: 3, Bytes: 48 << 20,
				Unchecked: 1 << 20,
			},
		},
	}
}

// runApp runs one command line against the cluster.
func runApp(t *testing.T, cluster *fakeCluster, environ []string,
	args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	app := &shell.App{
		Name: "percolator", Version: "v0.1.0", Environ: environ,
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		Connect: func(context.Context, []string, rpc.ClientConfig) (txn.Transport, error) {
			return cluster, cluster.fail
		},
	}
	code = Run(t.Context(), app, args)
	return code, out.String(), errs.String()
}

// fakeNode is a node that records how it was stopped.
type fakeNode struct {
	drained, closed bool
	drain           func(context.Context) error
}

func (n *fakeNode) Addr() string     { return "127.0.0.1:7800" }
func (n *fakeNode) HTTPAddr() string { return "127.0.0.1:7803" }
func (n *fakeNode) Drain(ctx context.Context) error {
	n.drained = true
	if n.drain != nil {
		return n.drain(ctx)
	}
	return nil
}
func (n *fakeNode) Close(context.Context) error { n.closed = true; return nil }

// startApp runs `start` with the arguments until it has stopped. Once the node is up it receives a
// signal after each function in before has returned.
func startApp(t *testing.T, node *fakeNode, environ []string, before []func(),
	args ...string) (code int, cfg config.Config, stderr string) {
	t.Helper()
	return startBeside(t, node, nil, environ, before, args...)
}

// startBeside is startApp of a program with functions that run with its node.
func startBeside(t *testing.T, node *fakeNode,
	beside []func(context.Context, shell.RunningNode) error, environ []string, before []func(),
	args ...string) (code int, cfg config.Config, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	signals := make(chan os.Signal)
	up := make(chan struct{})
	app := &shell.App{
		Name: "percolator", Version: "v0.1.0", Environ: environ, Signals: signals,
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, OnStart: beside,
		Start: func(_ context.Context, c config.Config) (shell.RunningNode, error) {
			cfg = c
			close(up)
			return node, nil
		},
	}
	go func() {
		<-up
		for _, wait := range before {
			wait()
			signals <- os.Interrupt
		}
		close(signals)
	}()
	done := make(chan int, 1)
	go func() { done <- Run(context.Background(), app, append([]string{"start"}, args...)) }()
	select {
	case code = <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("the node did not stop")
	}
	return code, cfg, errs.String()
}

// writeFile writes a configuration file and returns its name.
func writeFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "percolator.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
