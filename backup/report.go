package backup

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Progress reports of a backup, restore or load to the cluster, for its list of jobs. A goroutine
// reports until stop is called, which joins it. The job does not depend on it: failed reports are
// not repeated.

const (
	// reportEvery is less than a fifth of the time after which a job counts as silent.
	reportEvery = 2 * time.Second
	// reportTimeout limits one report: a hanging node must not delay the next.
	reportTimeout = reportEvery
	// maxReportText, in bytes, and maxReportTables are the maxima that nodes accept in a report.
	maxReportText, maxReportTables = 512, 64
)

// reportJob reports the job until stop is called with its result.
func (w *work) reportJob(ctx context.Context, job *pb.Job) (stop func(error)) {
	job.Id, job.By, job.Unit = random()+random(), text(w.By), "tablets"
	if len(job.Tables) > maxReportTables {
		job.Tables = nil // too many to report; none means all tables
	}
	w.report(ctx, job, "running", "") // so that it is listed from its start
	ended := make(chan struct{})
	var reporter sync.WaitGroup
	reporter.Go(func() {
		next := time.NewTicker(reportEvery)
		defer next.Stop()
		for {
			select {
			case <-next.C:
				w.report(ctx, job, "running", "")
			case <-ended:
				return
			case <-ctx.Done():
				return
			}
		}
	})
	return func(err error) {
		close(ended)
		reporter.Wait()
		// The job may have ended because ctx ended.
		ctx := context.WithoutCancel(ctx)
		if err != nil {
			w.report(ctx, job, "failed", err.Error())
			return
		}
		w.report(ctx, job, "done", "")
	}
}

// report sends one report.
func (w *work) report(ctx context.Context, job *pb.Job, state, detail string) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	job = proto.CloneOf(job)
	w.mu.Lock()
	p := w.tally
	w.mu.Unlock()
	job.State, job.Detail = state, text(detail)
	job.Done, job.Total = uint64(p.Done), uint64(p.Ranges)
	job.Bytes, job.Records = uint64(p.Bytes), uint64(p.Records)
	_, _ = w.client.Admin().ReportJob(ctx, &pb.ReportJobRequest{Job: job})
}

// text truncates s to the length of a report's text.
func text(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxReportText)], "")
}
