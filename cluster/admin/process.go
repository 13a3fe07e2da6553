package admin

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// This file describes the process, for who looks into it from outside: what HTTP's
// /debug/pprof has too, for operators with a certificate. It keeps nothing. A CPU profile
// runs on its caller's goroutine; the Go runtime refuses a second one.

const (
	// maxDescription bounds one answer.
	maxDescription = 16 << 20
	// maxProfile bounds how long a CPU profile runs.
	maxProfile = 60 * time.Second
)

// DescribeProcess implements pb.AdminServer. The answer is one message, so it is built in
// memory first; the kinds that grow with the node, metrics and goroutines, stay far below the
// bound with a thousand tablets.
func (s *Service) DescribeProcess(ctx context.Context,
	req *pb.DescribeProcessRequest) (*pb.DescribeProcessResponse, error) {
	var out bytes.Buffer
	var err error
	switch req.GetKind() {
	case pb.DescribeProcessRequest_KIND_BUILD:
		err = describeBuild(&out)
	case pb.DescribeProcessRequest_KIND_METRICS:
		err = s.cfg.Node.Metrics(&out)
	case pb.DescribeProcessRequest_KIND_GOROUTINES:
		// 1: as text, equal stacks counted, and without the arguments of functions.
		err = pprof.Lookup("goroutine").WriteTo(&out, 1)
	case pb.DescribeProcessRequest_KIND_HEAP:
		// 0: in the form that `go tool pprof` reads.
		err = pprof.Lookup("heap").WriteTo(&out, 0)
	case pb.DescribeProcessRequest_KIND_CPU:
		err = profileCPU(ctx, &out, time.Duration(req.GetSeconds())*time.Second)
	default:
		err = refuse("%v is no description of a process", req.GetKind())
	}
	if err != nil {
		return nil, err
	}
	if out.Len() > maxDescription {
		return nil, fmt.Errorf("admin: the description has %d bytes, and %d are the most", out.Len(),
			maxDescription)
	}
	return &pb.DescribeProcessResponse{Content: out.Bytes()}, nil
}

// profileCPU writes a profile of the time d, or of the shorter one until the caller has gone.
func profileCPU(ctx context.Context, w io.Writer, d time.Duration) error {
	if d < time.Second || d > maxProfile {
		return refuse("a CPU profile takes 1 to %d seconds, not %d", int(maxProfile.Seconds()),
			int(d.Seconds()))
	}
	if err := pprof.StartCPUProfile(w); err != nil {
		return refuse("%v; try again when that has ended", err)
	}
	// What has been sampled is written by the stop, also after the caller has gone.
	defer pprof.StopCPUProfile()
	return txn.Sleep(ctx, d)
}

// describeBuild writes what this process was built of and runs with. The command line and the
// environment are left out: they may hold secrets.
func describeBuild(w io.Writer) error {
	_, err := fmt.Fprintf(w, "processors=%d gomaxprocs=%d goroutines=%d memory-limit=%d os=%s/%s\n",
		runtime.NumCPU(), runtime.GOMAXPROCS(0), runtime.NumGoroutine(), debug.SetMemoryLimit(-1),
		runtime.GOOS, runtime.GOARCH)
	if info, ok := debug.ReadBuildInfo(); ok && err == nil {
		_, err = io.WriteString(w, info.String())
	}
	return err
}

// SetLogLevel implements pb.AdminServer. The change is logged at its own level or above, so
// that it is seen in the log.
func (s *Service) SetLogLevel(_ context.Context,
	req *pb.SetLogLevelRequest) (*pb.SetLogLevelResponse, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(req.GetLevel())); err != nil {
		return nil, refuse("%q is no level: known are debug, info, warn and error", req.GetLevel())
	}
	// A program around node.Open brings a logger of its own, which may have no level to set.
	current := s.cfg.Node.LogLevel()
	if current == nil {
		return nil, refuse("the program that runs this node has a log of its own, whose level " +
			"cannot be changed from here")
	}
	before := current.Level()
	current.Set(level)
	s.cfg.Logger.Log(context.Background(), max(level, before, slog.LevelInfo), "node: log level changed",
		"from", before, "to", level)
	return &pb.SetLogLevelResponse{Before: before.String()}, nil
}
