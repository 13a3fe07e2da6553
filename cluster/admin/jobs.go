package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Jobs of the cluster and its clients. Clients report their own jobs (backups, restores) to any
// node, which keeps the newest reports in memory, in Jobs; the cluster's own jobs are derived
// from the statuses that ClusterStatus has gathered, on the goroutine of that call.

// Kinds and states of jobs.
const (
	jobBackup   = "backup"
	jobRestore  = "restore"
	jobBackfill = "backfill"
	jobDrain    = "drain"
	jobMove     = "move"
	jobTable    = "table" // creation of the tablets at a table's split keys

	jobRunning    = "running"
	jobDone       = "done"
	jobFailed     = "failed"
	jobSilent     = "silent"
	jobBlocked    = "blocked"
	jobUnfinished = "unfinished"
)

// Limits of a node's jobs: their number, the bytes of a text, the tables of one job, how long a job
// is kept after its last report, and the time without a report after which a running job counts as
// silent.
const (
	maxJobs      = 32
	maxJobText   = 512
	maxJobTables = 64
	keepJob      = time.Hour
	silentJob    = 15 * time.Second
)

// Jobs are the jobs that clients have reported to this node, and the creations of tables that it
// runs (Splitting). Its methods are safe for concurrent use.
type Jobs struct {
	mu   sync.Mutex
	jobs []*pb.Job // ordered by last report, oldest first
}

// report records a job's newest state.
func (j *Jobs) report(job *pb.Job, now time.Time) error {
	texts := []string{job.GetId(), job.GetSubject(), job.GetDetail(), job.GetUnit(), job.GetBy()}
	texts = append(texts, job.GetTables()...)
	long := func(s string) bool { return len(s) > maxJobText }
	switch {
	case job.GetKind() != jobBackup && job.GetKind() != jobRestore:
		return refuse("a client's job must be of the kind %s or %s", jobBackup, jobRestore)
	case job.State != jobRunning && job.State != jobDone && job.State != jobFailed:
		return refuse("a reported job must be in the state %s, %s or %s", jobRunning, jobDone, jobFailed)
	case job.Id == "" || len(job.Tables) > maxJobTables || slices.ContainsFunc(texts, long):
		return refuse("a job must have an id, at most %d tables, and texts of at most %d bytes", maxJobTables,
			maxJobText)
	}
	// The request's message belongs to the caller, which may be in this process (conn.go).
	j.keep(proto.CloneOf(job), now)
	return nil
}

// Splitting records that this node creates the tablets at a table's split keys.
func (j *Jobs) Splitting(table string) {
	j.keep(&pb.Job{
		Kind: jobTable, Id: table, Subject: "table " + table, State: jobRunning, Tables: []string{table},
	}, time.Now())
}

// keep stores a job's newest state.
func (j *Jobs) keep(job *pb.Job, now time.Time) {
	job.SeenUnixMs = now.UnixMilli()
	j.mu.Lock()
	defer j.mu.Unlock()
	// By this node's clock, as SeenUnixMs: a time from the client is overwritten.
	job.StartedUnixMs = job.SeenUnixMs
	j.jobs = slices.DeleteFunc(j.jobs, func(o *pb.Job) bool {
		same := o.Kind == job.Kind && o.Id == job.Id
		if same {
			job.StartedUnixMs = o.StartedUnixMs
		}
		return same
	})
	// Beyond the limit the job without a report for longest is dropped: it is the first.
	if j.jobs = append(j.jobs, job); len(j.jobs) > maxJobs {
		j.jobs = j.jobs[1:]
	}
}

// All returns the jobs, except those whose last report is older than keepJob. A running job
// without a report for silentJob is returned as silent.
func (j *Jobs) All(now time.Time) []*pb.Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.jobs = slices.DeleteFunc(j.jobs, func(o *pb.Job) bool {
		return now.Sub(time.UnixMilli(o.SeenUnixMs)) > keepJob
	})
	out := make([]*pb.Job, len(j.jobs))
	for i, o := range j.jobs {
		out[i] = proto.CloneOf(o)
		if o.State == jobRunning && now.Sub(time.UnixMilli(o.SeenUnixMs)) > silentJob {
			out[i].State = jobSilent
			out[i].Detail = "its process no longer reports: if it has ended, run the " +
				"same command again to continue"
		}
	}
	return out
}

// ReportJob implements pb.AdminServer.
func (s *Service) ReportJob(_ context.Context,
	req *pb.ReportJobRequest) (*pb.ReportJobResponse, error) {
	return &pb.ReportJobResponse{}, s.cfg.Jobs.report(req.GetJob(), time.Now())
}

// jobsOf returns all jobs in the status: first those that have neither succeeded nor failed, then
// the others, each newest first. unfinished are the tables being restored or with pending split
// keys, tablets the tablet map.
func jobsOf(out *pb.ClusterStatusResponse, unfinished []*pb.Table,
	tablets []*pb.TabletDescriptor) []*pb.Job {
	var jobs []*pb.Job
	for _, n := range out.Nodes {
		for _, j := range n.GetStatus().GetJobs() {
			j.NodeId = n.Node.NodeId
			jobs = append(jobs, j)
		}
	}
	jobs = splitJobs(latest(jobs), unfinished, tablets)
	// A table being restored without a reporting client: its client has died. A running restore
	// that names no tables restores all.
	for _, t := range unfinished {
		if t.Restoring != nil && !slices.ContainsFunc(jobs, func(j *pb.Job) bool {
			all := len(j.Tables) == 0
			return j.Kind == jobRestore && j.State == jobRunning && (all || slices.Contains(j.Tables, t.Name))
		}) {
			jobs = append(jobs, unfinishedRestore(t))
		}
	}
	// A back-fill's progress is in its record in meta, whichever node runs it.
	for _, o := range out.Observers {
		if b := o.GetBackfill(); b != nil && !b.Done && !b.Cancelled {
			jobs = append(jobs, backfillJob(o.GetInfo().GetTable(), b, tablets))
		}
	}
	// Drains are states of nodes; moves are reported only by the node that leads meta.
	for _, n := range out.Nodes {
		if n.Node.State == pb.NodeState_NODE_STATE_DRAINING {
			jobs = append(jobs, drainJob(n.Node))
		}
		if p := n.GetStatus().GetPlacement(); p.GetChanging()+p.GetOrders() > 0 {
			jobs = append(jobs, moveJob(n.Node.NodeId, p))
		}
	}
	slices.SortStableFunc(jobs, func(a, b *pb.Job) int {
		return cmp.Or(cmp.Compare(ended(a), ended(b)), cmp.Compare(b.StartedUnixMs, a.StartedUnixMs))
	})
	return jobs
}

// latest returns the newest report of each job: two nodes know a job whose client switched nodes.
func latest(jobs []*pb.Job) (out []*pb.Job) {
	for _, j := range jobs {
		i := slices.IndexFunc(out, func(o *pb.Job) bool { return o.Kind == j.Kind && o.Id == j.Id })
		switch {
		case i < 0:
			out = append(out, j)
		case out[i].SeenUnixMs < j.SeenUnixMs:
			out[i] = j
		}
	}
	return out
}

// ended returns 1 for a job that has succeeded or failed, which is listed after the others, and 0
// for any other, such as a running or a blocked one.
func ended(j *pb.Job) int {
	if j.State == jobDone || j.State == jobFailed {
		return 1
	}
	return 0
}

// unfinishedRestore returns a restore without a client: its table cannot be opened.
func unfinishedRestore(t *pb.Table) *pb.Job {
	return &pb.Job{
		Kind: jobRestore, Id: fmt.Sprintf("table %d", t.Id), Subject: "table " + t.Name,
		State: jobUnfinished, Tables: []string{t.Name},
		Detail: fmt.Sprintf("from %s; run the same command again to finish it, or "+
			"abandon it with `percolator table drop`",
			t.Restoring.GetSource()),
	}
}

// splitJobs returns the jobs, in which one for each table with pending split keys replaces all the
// nodes' reports of creations: the tablet map contains the progress.
func splitJobs(jobs []*pb.Job, tables []*pb.Table, tablets []*pb.TabletDescriptor) []*pb.Job {
	reports := map[string]*pb.Job{}
	jobs = slices.DeleteFunc(jobs, func(j *pb.Job) bool {
		if j.Kind == jobTable {
			reports[j.Id] = j
		}
		return j.Kind == jobTable
	})
	starts := map[wire.Position]bool{}
	for _, d := range tablets {
		starts[wire.StartOf(d)] = true
	}
	for _, t := range tables {
		if len(t.PendingSplitKeys) == 0 {
			continue
		}
		j := reports[t.Name]
		if j.GetState() != jobRunning {
			j = &pb.Job{
				Kind: jobTable, Id: t.Name, Subject: "table " + t.Name, State: jobUnfinished,
				Tables: []string{t.Name}, SeenUnixMs: j.GetSeenUnixMs(),
				Detail: "not all tablets at its split keys exist; run the same `percolator table " +
					"create` again to continue, or abandon it with `percolator table drop`",
			}
		}
		j.Unit, j.Total = "split keys", uint64(len(t.SplitKeys)+len(t.PendingSplitKeys))
		j.Done = uint64(len(t.SplitKeys))
		for _, key := range t.PendingSplitKeys {
			if starts[wire.Position{Table: mvcc.TableID(t.Id), Row: wire.String(key)}] {
				j.Done++
			}
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// backfillJob reports the number of the table's completed tablets as progress.
func backfillJob(table uint32, b *pb.Backfill, tablets []*pb.TabletDescriptor) *pb.Job {
	j := &pb.Job{
		Kind: jobBackfill, Id: b.Name, Subject: "observer " + b.Name, State: jobRunning,
		Records: b.Rows, Unit: "tablets", StartedUnixMs: mvcc.Timestamp(b.Ts).Millis(),
	}
	for _, d := range tablets {
		// NextRow is the next row to mark: a tablet that ends at or before it is done. The last
		// tablet of a table has no end: it is done when the back-fill is.
		rows, ok := wire.Clip(d, mvcc.Span{Table: mvcc.TableID(table)})
		if !ok {
			continue
		}
		if j.Total++; rows.HasEnd && rows.End <= wire.String(b.NextRow) {
			j.Done++
		}
	}
	if b.Error != "" {
		j.State, j.Detail = jobBlocked, b.Error
	}
	return j
}

// drainJob counts the replicas that have left the node, of those at the time of the order.
func drainJob(n *pb.Node) *pb.Job {
	j := &pb.Job{
		Kind: jobDrain, Id: fmt.Sprint(n.NodeId), Subject: fmt.Sprintf("node %d", n.NodeId),
		State: jobRunning, Unit: "replicas", NodeId: n.NodeId,
		Detail: fmt.Sprintf("%d replicas remain", n.Replicas),
	}
	if n.DrainReplicas > 0 { // n.Replicas may be higher: some replicas were still being added
		j.Total = uint64(max(n.DrainReplicas, n.Replicas))
		j.Done = j.Total - uint64(n.Replicas)
	}
	if n.Blocked != "" {
		j.State, j.Detail = jobBlocked, n.Blocked
	}
	return j
}

// moveJob combines placement's current moves in one job, because they are short and there may be
// thousands.
func moveJob(node uint64, p *pb.PlacementStatus) *pb.Job {
	j := &pb.Job{
		Kind: jobMove, Id: fmt.Sprint(node), State: jobRunning, Done: p.Moves, Unit: "replicas",
		NodeId: node,
		Subject: fmt.Sprintf("changing the replicas of %d tablets, %d ordered moves", p.Changing,
			p.Orders),
	}
	// Done counts since the node began to lead meta. An order whose replicas are being changed
	// counts once.
	j.Total = j.Done + uint64(max(p.Changing, p.Orders))
	if len(p.Blocked) > 0 {
		j.State, j.Detail = jobBlocked, p.Blocked[0]
	}
	return j
}
