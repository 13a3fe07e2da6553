package admin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// describedNode implements only the description of its process.
type describedNode struct {
	Node
	level *slog.LevelVar
}

func (n describedNode) LogLevel() *slog.LevelVar { return n.level }
func (describedNode) Metrics(w io.Writer) error {
	_, err := io.WriteString(w, "percolator_up 1\n")
	return err
}

func TestDescribeProcess(t *testing.T) {
	s := New(Config{Node: describedNode{}})
	describe := func(kind pb.DescribeProcessRequest_Kind, seconds uint32) ([]byte, error) {
		answer, err := s.DescribeProcess(t.Context(),
			&pb.DescribeProcessRequest{Kind: kind, Seconds: seconds})
		return answer.GetContent(), err
	}
	for kind, has := range map[pb.DescribeProcessRequest_Kind]string{
		pb.DescribeProcessRequest_KIND_BUILD:      "gomaxprocs=",
		pb.DescribeProcessRequest_KIND_METRICS:    "percolator_up 1",
		pb.DescribeProcessRequest_KIND_GOROUTINES: "TestDescribeProcess",
		pb.DescribeProcessRequest_KIND_HEAP:       "\x1f\x8b", // compressed
		pb.DescribeProcessRequest_KIND_CPU:        "\x1f\x8b",
	} {
		if content, err := describe(kind, 1); err != nil || !strings.Contains(string(content), has) {
			t.Errorf("%v: %d bytes without %q, %v", kind, len(content), has, err)
		}
	}
	for kind, seconds := range map[pb.DescribeProcessRequest_Kind]uint32{
		0: 1, 99: 1, pb.DescribeProcessRequest_KIND_CPU: 61,
	} {
		var refused *txn.ServerError
		if _, err := describe(kind, seconds); !errors.As(err, &refused) {
			t.Errorf("%v for %d seconds: %v", kind, seconds, err)
		}
	}
}

// A caller that cancels does not leave its profile running, which would block others.
func TestProfileEndsWithItsCaller(t *testing.T) {
	s := New(Config{Node: describedNode{}})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	req := &pb.DescribeProcessRequest{Kind: pb.DescribeProcessRequest_KIND_CPU, Seconds: 60}
	if _, err := s.DescribeProcess(gone, req); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	req.Seconds = 1
	if _, err := s.DescribeProcess(t.Context(), req); err != nil {
		t.Error(err)
	}
}

func TestSetLogLevel(t *testing.T) {
	level := &slog.LevelVar{}
	var log strings.Builder
	s := New(Config{
		Node:   describedNode{level: level},
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level})),
	})
	answer, err := s.SetLogLevel(t.Context(), &pb.SetLogLevelRequest{Level: "error"})
	if err != nil || answer.GetBefore() != "INFO" || level.Level() != slog.LevelError {
		t.Errorf("%v, %v; the level is %v", answer, err, level)
	}
	if !strings.Contains(log.String(), "from=INFO to=ERROR") {
		t.Errorf("the log reports %q of it", &log)
	}
	var refused *txn.ServerError
	_, err = s.SetLogLevel(t.Context(), &pb.SetLogLevelRequest{Level: "loud"})
	if !errors.As(err, &refused) || level.Level() != slog.LevelError {
		t.Errorf("%v; the level is %v", err, level)
	}
	s = New(Config{Node: describedNode{}})
	_, err = s.SetLogLevel(t.Context(), &pb.SetLogLevelRequest{Level: "info"})
	if !errors.As(err, &refused) {
		t.Errorf("without a level: %v", err)
	}
}
