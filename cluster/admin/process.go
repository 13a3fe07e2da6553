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

// Description of the process: its build, its metrics, and the profiles of goroutines, heap and CPU
// of HTTP's /debug/pprof, for operators with a certificate. A CPU profile runs on its caller's
// goroutine; the Go runtime rejects a second one.

const (
	// maxDescription is the maximum size of one response in bytes.
	maxDescription = 16 << 20
	// maxProfile is the maximum duration of a CPU profile.
	maxProfile = 60 * time.Second
)

// DescribeProcess implements pb.AdminServer. The response is one message, so it is built in
// memory first; the kinds that grow with the node, metrics and goroutines, stay far below the
// limit with a thousand tablets.
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
		// 1: as text, with equal stacks counted and without the arguments of functions.
		err = pprof.Lookup("goroutine").WriteTo(&out, 1)
	case pb.DescribeProcessRequest_KIND_HEAP:
		// 0: in the format of `go tool pprof`.
		err = pprof.Lookup("heap").WriteTo(&out, 0)
	case pb.DescribeProcessRequest_KIND_CPU:
		err = profileCPU(ctx, &out, time.Duration(req.GetSeconds())*time.Second)
	default:
		err = refuse("%v is not a description of a process", req.GetKind())
	}
	if err != nil {
		return nil, err
	}
	if out.Len() > maxDescription {
		return nil, fmt.Errorf("admin: the description has %d bytes, more than %d", out.Len(),
			maxDescription)
	}
	return &pb.DescribeProcessResponse{Content: out.Bytes()}, nil
}

// profileCPU writes a CPU profile of the duration d, or less if the caller goes away.
func profileCPU(ctx context.Context, w io.Writer, d time.Duration) error {
	if d < time.Second || d > maxProfile {
		return refuse("a CPU profile takes 1 to %d seconds, not %d", int(maxProfile.Seconds()),
			int(d.Seconds()))
	}
	if err := pprof.StartCPUProfile(w); err != nil {
		return refuse("%v; retry when it has finished", err)
	}
	// Stop writes the samples, even after the caller has gone.
	defer pprof.StopCPUProfile()
	return txn.Sleep(ctx, d)
}

// describeBuild writes the build and runtime settings of this process. The command line and the
// environment are omitted: they may contain secrets.
func describeBuild(w io.Writer) error {
	_, err := fmt.Fprintf(w, "processors=%d gomaxprocs=%d goroutines=%d memory-limit=%d os=%s/%s\n",
		runtime.NumCPU(), runtime.GOMAXPROCS(0), runtime.NumGoroutine(), debug.SetMemoryLimit(-1),
		runtime.GOOS, runtime.GOARCH)
	if info, ok := debug.ReadBuildInfo(); ok && err == nil {
		_, err = io.WriteString(w, info.String())
	}
	return err
}

// SetLogLevel implements pb.AdminServer. The change is logged at its own level or above, so that
// the log contains it.
func (s *Service) SetLogLevel(_ context.Context,
	req *pb.SetLogLevelRequest) (*pb.SetLogLevelResponse, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(req.GetLevel())); err != nil {
		return nil, refuse("%q is not a log level: use debug, info, warn or error", req.GetLevel())
	}
	// A program around node.Open has its own logger, whose level may be fixed.
	current := s.cfg.Node.LogLevel()
	if current == nil {
		return nil, refuse("the program that runs this node has its own log, whose level " +
			"cannot be changed from here")
	}
	before := current.Level()
	current.Set(level)
	s.cfg.Logger.Log(context.Background(), max(level, before, slog.LevelInfo), "node: log level changed",
		"from", before, "to", level)
	return &pb.SetLogLevelResponse{Before: before.String()}, nil
}
