package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node/config"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		fail error
		code int
		next string // part of the hint
	}{
		{nil, shell.ExitDone, ""},
		{percolator.ErrNoTable, shell.ExitFailed, "table create"},
		{fmt.Errorf("wrapped: %w", percolator.ErrConflict), shell.ExitFailed, "try again"},
		{percolator.ErrCommitUnknown, shell.ExitFailed, "history"},
		{percolator.ErrUnavailable, shell.ExitUnavailable, "start"},
		{percolator.ErrOverloaded, shell.ExitUnavailable, "try again"},
		{status.Error(codes.Unavailable, "connection refused"), shell.ExitUnavailable, "start"},
		{context.DeadlineExceeded, shell.ExitUnavailable, "--timeout"},
		{&txn.ServerError{Code: pb.Error_CODE_UNAVAILABLE, Message: "later"}, shell.ExitUnavailable, ""},
		{&txn.ServerError{Code: pb.Error_CODE_INVALID, Message: "no"}, shell.ExitFailed, ""},
		{errors.New("whatever"), shell.ExitFailed, ""},
	} {
		cluster := bankCluster()
		cluster.fail = tc.fail
		code, stdout, stderr := runApp(t, cluster, nil, "status")
		if code != tc.code || !strings.Contains(stderr, tc.next) {
			t.Errorf("%v: exit code %d, want %d\n%s", tc.fail, code, tc.code, stderr)
		}
		if tc.fail != nil && (stdout != "" || !strings.HasPrefix(stderr, "percolator status: ")) {
			t.Errorf("%v: standard output %q, error %q", tc.fail, stdout, stderr)
		}
	}
}

func TestTimeoutIsUnavailable(t *testing.T) {
	cluster := bankCluster()
	cluster.hang = true
	code, _, stderr := runApp(t, cluster, nil, "status", "--timeout", "1ms")
	if code != shell.ExitUnavailable || !strings.Contains(stderr, shell.ErrTimeout.Error()) ||
		!strings.Contains(stderr, "not answered within --timeout") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestAheadOfTheClock: a time given by the clock causes a warning while timestamps are ahead of it,
// and no other argument does.
func TestAheadOfTheClock(t *testing.T) {
	clock := time.Now()
	for _, c := range []struct {
		ahead time.Duration
		at    string
		warns bool
	}{
		{time.Hour, clock.UTC().Format(time.RFC3339Nano), true},
		{-time.Hour, clock.Add(-2 * time.Hour).UTC().Format(time.RFC3339Nano), false},
		{time.Hour, "5m", false},
		{time.Hour, "", false},
		{time.Hour, fmt.Sprint(uint64(mvcc.TimestampAt(clock.UnixMilli()))), false},
	} {
		cluster := &fakeCluster{
			now:    mvcc.TimestampAt(clock.Add(c.ahead).UnixMilli()),
			tables: []*pb.Table{{Id: 16, Name: "t"}},
			tablets: []*pb.TabletDescriptor{{
				TabletId: 3, Epoch: 1, StartTable: 16, EndUnbounded: true,
			}},
			scanned: func(*pb.ScanRequest) *pb.ScanResponse { return &pb.ScanResponse{Done: true} },
		}
		code, _, stderr := runApp(t, cluster, nil, "scan", "t", "--at="+c.at)
		if code != shell.ExitDone || strings.Contains(stderr, "ahead of this machine's clock") != c.warns {
			t.Errorf("AHEAD: %v, --at %q: %d, %s", c.ahead, c.at, code, stderr)
		}
	}
}

// TestTwoObservers: an observer named twice is one; two are ambiguous.
func TestTwoObservers(t *testing.T) {
	for other, want := range map[string]int{"count": shell.ExitDone, "mail": shell.ExitUsage} {
		code, stdout, stderr := runApp(t, bankCluster(), nil, "notify", "ls", "count", "--observer",
			other)
		if code != want || (want == shell.ExitUsage) != strings.Contains(stderr, "name one observer") {
			t.Errorf("%s: exit code %d, %s%s", other, code, stdout, stderr)
		}
	}
}

func TestSettingsPrecedence(t *testing.T) {
	file := writeFile(t, "http: 127.0.0.1:9001\nscanners: 5\nlock-ttl: 3s\nbatch:\n  tablet:\n    max-messages: 7\nlabels:\n  zone: a\n")
	for _, tc := range []struct {
		name    string
		environ []string
		args    []string
		check   func(config.Config) error
	}{
		{"default", nil, nil, func(c config.Config) error {
			return want(c.Scanners, config.DefaultConfig().Scanners)
		}},
		{"file", nil, []string{"--config", file}, func(c config.Config) error {
			return errors.Join(want(c.Scanners, 5), want(c.HTTP, "127.0.0.1:9001"),
				want(c.LockTTL, 3*time.Second),
				want(c.Batch.Tablet.MaxMessages, 7), want(c.Labels["zone"], "a"))
		}},
		{"file named by the environment", []string{"PERCOLATOR_CONFIG=" + file}, nil,
			func(c config.Config) error {
				return want(c.Scanners, 5)
			}},
		{"environment over file", []string{
			"PERCOLATOR_SCANNERS=6", "PERCOLATOR_BATCH_TABLET_MAX_MESSAGES=8",
		}, []string{"--config", file},
			func(c config.Config) error {
				return errors.Join(want(c.Scanners, 6), want(c.Batch.Tablet.MaxMessages, 8))
			}},
		{"flag over environment", []string{"PERCOLATOR_SCANNERS=6"},
			[]string{"--config", file, "--scanners", "7"},
			func(c config.Config) error { return want(c.Scanners, 7) }},
		{"HTTP's names and profiles", []string{"PERCOLATOR_PPROF=true"},
			[]string{"--http-host", "a,b", "--http-host", "c"},
			func(c config.Config) error {
				return errors.Join(want(strings.Join(c.HTTPHosts, " "), "a b c"),
					want(c.Pprof, true))
			}},
		{"former names of flags", nil,
			[]string{"--join", "127.0.0.1:1", "--expect", "3", "--gone-after=15s"},
			func(c config.Config) error {
				return errors.Join(want(c.Expect, 3), want(c.Placement.GoneAfter, 15*time.Second),
					want(slices.Contains(c.Given, "replace-dead-after"), true))
			}},
		{"former names in the environment and the file",
			[]string{"PERCOLATOR_EXPECT=3", "PERCOLATOR_JOIN=127.0.0.1:1"},
			[]string{"--config", writeFile(t, "expect: 5\ngone-after: 15s\n")},
			func(c config.Config) error {
				return errors.Join(want(c.Expect, 3), want(c.Placement.GoneAfter, 15*time.Second))
			}},
		{"a former name of a flag over the environment", []string{"PERCOLATOR_BOOTSTRAP_EXPECT=5"},
			[]string{"--join", "127.0.0.1:1", "--expect", "3"},
			func(c config.Config) error { return want(c.Expect, 3) }},
		{"a present name over the former one", []string{
			"PERCOLATOR_EXPECT=5", "PERCOLATOR_BOOTSTRAP_EXPECT=3", "PERCOLATOR_JOIN=127.0.0.1:1",
		}, nil, func(c config.Config) error { return want(c.Expect, 3) }},
		{"another command's setting", []string{"PERCOLATOR_ADDR=127.0.0.1:1"}, nil,
			func(config.Config) error {
				return nil
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := &fakeNode{}
			code, cfg, stderr := startApp(t, node, tc.environ, []func(){func() {}},
				append(tc.args, "--dir", t.TempDir(), "--insecure")...)
			if code != shell.ExitDone {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			if err := tc.check(cfg); err != nil {
				t.Error(err)
			}
		})
	}
}

func want[T comparable](got, want T) error {
	if got != want {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}

func TestUnknownSettingsAreRefused(t *testing.T) {
	for _, tc := range []struct {
		environ []string
		file    string
		says    string
	}{
		{[]string{"PERCOLATOR_LISTENN=x"}, "", `PERCOLATOR_LISTENN (did you mean "listen"?)`},
		{[]string{"PERCOLATOR_YES=true"}, "", "unknown setting PERCOLATOR_YES"},
		{nil, "yes: true\n", `unknown key "yes"`},
		{nil, "scaners: 5\n", `unknown key "scaners" (did you mean "scanners"?)`},
		{nil, "batch: {tablet: {size: 1}}\n", `unknown key "batch-tablet-size"`},
		{nil, "scanners: [oops\n", "configuration file"},
		{nil, "timeout: soon\n", `setting "timeout"`},
		{nil, "insecure: yes\n", `"yes" is neither true nor false`},
		{[]string{"PERCOLATOR_PORT=7800"}, "", "unknown setting PERCOLATOR_PORT"},
		{[]string{"PERCOLATOR_SERVICES_HOST=x"}, "", "unknown setting PERCOLATOR_SERVICES_HOST"},
	} {
		args := []string{"status"}
		if tc.file != "" {
			args = append(args, "--config", writeFile(t, tc.file))
		}
		code, _, stderr := runApp(t, bankCluster(), tc.environ, args...)
		if code != shell.ExitUsage || !strings.Contains(stderr, tc.says) {
			t.Errorf("%v %q: exit code %d, %s", tc.environ, tc.file, code, stderr)
		}
	}
}

// TestServiceLinks: the variables that Kubernetes sets for services named percolator and
// percolator-nodes are no settings.
func TestServiceLinks(t *testing.T) {
	environ := []string{
		"PERCOLATOR_SERVICE_HOST=10.0.0.1", "PERCOLATOR_SERVICE_PORT=7800",
		"PERCOLATOR_SERVICE_PORT_CLIENTS=7800", "PERCOLATOR_PORT=tcp://10.0.0.1:7800",
		"PERCOLATOR_PORT_7800_TCP=tcp://10.0.0.1:7800", "PERCOLATOR_PORT_7800_TCP_PROTO=tcp",
		"PERCOLATOR_PORT_7800_TCP_PORT=7800", "PERCOLATOR_PORT_7800_TCP_ADDR=10.0.0.1",
		"PERCOLATOR_NODES_SERVICE_HOST=10.0.0.2", "PERCOLATOR_NODES_SERVICE_PORT=7802",
		"PERCOLATOR_NODES_PORT=udp://10.0.0.2:7802", "PERCOLATOR_NODES_PORT_7802_UDP_ADDR=10.0.0.2",
	}
	if code, _, stderr := runApp(t, bankCluster(), environ, "status"); code != shell.ExitDone {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

func TestSignals(t *testing.T) {
	t.Run("first drains", func(t *testing.T) {
		node := &fakeNode{}
		code, _, stderr := startApp(t, node, nil, []func(){func() {}}, "--dir", t.TempDir(),
			"--insecure")
		if code != shell.ExitDone || !node.drained || !node.closed {
			t.Errorf("exit code %d, drained %v, closed %v: %s", code, node.drained, node.closed,
				stderr)
		}
	})
	t.Run("second forces", func(t *testing.T) {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			draining := make(chan struct{})
			node := &fakeNode{drain: func(ctx context.Context) error {
				close(draining)
				<-ctx.Done()
				return ctx.Err()
			}}
			later := func() { <-draining; <-time.After(50 * time.Millisecond) } // a second signal
			code, _, stderr := startApp(t, node, nil, []func(){func() {}, later}, "--dir", dir,
				"--insecure")
			if code != shell.ExitFailed || !strings.Contains(stderr, "before it was drained") {
				t.Errorf("exit code %d: %s", code, stderr)
			}
		})
	})
	t.Run("twice at once is one", func(t *testing.T) { // as timeout(1) sends it
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			draining := make(chan struct{})
			node := &fakeNode{drain: func(ctx context.Context) error {
				close(draining)
				select {
				case <-ctx.Done():
				case <-time.After(25 * time.Millisecond): // still the first signal
				}
				return ctx.Err()
			}}
			code, _, stderr := startApp(t, node, nil, []func(){func() {}, func() {
				<-draining
			}}, "--dir", dir, "--insecure")
			if code != shell.ExitDone || !node.drained || !node.closed {
				t.Errorf("exit code %d, drained %v, closed %v: %s", code, node.drained, node.closed,
					stderr)
			}
		})
	})
	t.Run("a function beside the node that hangs", func(t *testing.T) {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			node, hung := &fakeNode{}, make(chan struct{})
			var told atomic.Bool
			hangs := func(ctx context.Context, _ shell.RunningNode) error {
				<-ctx.Done()
				told.Store(true)
				<-hung
				return nil
			}
			node.drain = func(ctx context.Context) error {
				if !told.Load() || ctx.Err() != nil {
					t.Errorf("drained with %v; was the function told? %v", ctx.Err(), told.Load())
				}
				return nil
			}
			code, _, stderr := startBeside(t, node,
				[]func(context.Context, shell.RunningNode) error{hangs}, nil, []func(){func() {}},
				"--dir", dir, "--insecure", "--drain-timeout", "10s")
			if code != shell.ExitDone || !node.drained || !node.closed ||
				!strings.Contains(stderr, "has not returned") {
				t.Errorf("exit code %d, drained %v, closed %v: %s", code, node.drained, node.closed,
					stderr)
			}
			close(hung)
		})
	})
	t.Run("slow drain is cut off", func(t *testing.T) {
		node := &fakeNode{drain: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		code, _, stderr := startApp(t, node, nil, []func(){func() {}}, "--dir", t.TempDir(),
			"--insecure", "--drain-timeout", "1ms")
		if code != shell.ExitDone || !node.closed || !strings.Contains(stderr, "did not finish in time") {
			t.Errorf("exit code %d: %s", code, stderr)
		}
	})
}

func TestWalkPagesOverTablets(t *testing.T) {
	cluster := bankCluster()
	rows := []string{"a", "b", "c", "n", "o"} // tablet 2 ends before m
	cluster.walked = func(req *pb.WalkRequest) *pb.WalkResponse {
		if req.Group != uint32(mvcc.GroupLock) {
			return &pb.WalkResponse{Done: true}
		}
		page := &pb.WalkResponse{Done: true}
		for _, row := range rows {
			inTablet := (string(req.FromRow) < "m") == (row < "m")
			if !inTablet || row < string(req.FromRow) ||
				(req.After != nil && row <= string(req.After.Row)) {
				continue
			}
			if len(page.Entries) == 2 {
				page.Done = false
				break
			}
			cell := &pb.Cell{Table: 16, Row: []byte(row), Column: []byte("bal")}
			page.Entries = append(page.Entries,
				&pb.WalkEntry{Cell: cell, Lock: &pb.Lock{StartTs: 5, Primary: cell, Expiry: 9}})
		}
		return page
	}
	code, stdout, stderr := runApp(t, cluster, nil, "lock", "ls", "-o", "json")
	if code != shell.ExitDone {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var got []string
	for dec := json.NewDecoder(strings.NewReader(stdout)); dec.More(); {
		var l struct{ Cell struct{ Row string } }
		if err := dec.Decode(&l); err != nil {
			t.Fatal(err)
		}
		got = append(got, l.Cell.Row)
	}
	if strings.Join(got, " ") != strings.Join(rows, " ") {
		t.Errorf("rows %v, want %v", got, rows)
	}
	_, stdout, stderr = runApp(t, cluster, nil, "lock", "ls", "--limit", "4")
	if strings.Count(stdout, "\n") != 5 || !strings.Contains(stderr, "first 4") {
		t.Errorf("a limit of 4 shows\n%s%s", stdout, stderr)
	}
}

// TestOutput runs the command lines in testdata/output against bankCluster.
func TestOutput(t *testing.T) {
	datadriven.RunTest(t, "testdata/output", func(t *testing.T, d *datadriven.TestData) string {
		cluster := bankCluster()
		cluster.walked = oneOfEachLock
		code, stdout, stderr := runApp(t, cluster, nil, strings.Fields(d.Input)...)
		if code != shell.ExitDone {
			return fmt.Sprintf("exit code %d\n%s%s", code, stdout, stderr)
		}
		return stdout + stderr
	})
}

// oneOfEachLock returns one lock, one intent and two notifications, in the tablet that begins with
// the table.
func oneOfEachLock(req *pb.WalkRequest) *pb.WalkResponse {
	page := &pb.WalkResponse{Done: true}
	if len(req.FromRow) > 0 {
		return page
	}
	cell := func(row string, class mvcc.Class, column string) *pb.Cell {
		return &pb.Cell{Table: 16, Row: []byte(row), Class: uint32(class), Column: []byte(column)}
	}
	switch mvcc.Group(req.Group) {
	case mvcc.GroupLock:
		page.Entries = []*pb.WalkEntry{
			{Cell: cell("Bob", mvcc.ClassData, "bal"),
				Lock: &pb.Lock{
					StartTs: 7, Primary: cell("Bob", mvcc.ClassData, "bal"), Expiry: 90,
				}},
			{Cell: cell("Joe", mvcc.ClassAck, "count"),
				Lock: &pb.Lock{StartTs: 7, Primary: cell("Bob", mvcc.ClassData, "bal"), Expiry: 90,
					Kind: pb.Kind_KIND_DELETE, Worker: &pb.Worker{Node: 1, Incarnation: 2}}},
		}
	case mvcc.GroupIntent:
		page.Entries = []*pb.WalkEntry{{Cell: cell("\xff", mvcc.ClassData, string(req.Column)),
			Ts:     8,
			Intent: &pb.Intent{Primary: cell("Bob", mvcc.ClassData, "bal"), Expiry: 91}}}
	case mvcc.GroupNotify:
		if string(req.Column) == "bal" {
			page.Entries = []*pb.WalkEntry{
				{Cell: cell("Bob", mvcc.ClassData, "bal"), Notify: &pb.Notify{Ts: 8}},
				{Cell: cell("Joe", mvcc.ClassData, "bal"),
					Notify: &pb.Notify{
						Ts: 8, Attempts: 10, ParkedTs: 40, Error: "panic: no\nluck",
					}},
			}
		}
	}
	return page
}
