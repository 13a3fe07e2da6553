package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/admin"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// All stored or received text is one of these in the tests below: terminal commands in their 7-bit
// and 8-bit forms, cursor movements, and shell syntax. The first is a valid name of a table.
const (
	evilName = "e\x1b]0;title\x07\x1b[31m\u009b1m\x7f\r\b\n  next: `rm x`$(touch y)'\u202e"
	evilRow  = evilName + "\xff\x9b31m"
)

// poison replaces all text in the message and its submessages.
func poison(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		each := func(v protoreflect.Value) protoreflect.Value {
			switch f.Kind() {
			case protoreflect.StringKind:
				return protoreflect.ValueOfString(evilName)
			case protoreflect.BytesKind:
				return protoreflect.ValueOfBytes([]byte(evilRow))
			case protoreflect.MessageKind:
				poison(v.Message())
			}
			return v
		}
		switch {
		case f.IsList():
			for i := range v.List().Len() {
				v.List().Set(i, each(v.List().Get(i)))
			}
		case f.IsMap(): // labels
			v.Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
				v.Map().Set(k, protoreflect.ValueOfString(evilName))
				return true
			})
		default:
			m.Set(f, each(v))
		}
		return true
	})
}

func poisonAll[M proto.Message](messages []M) []M {
	for _, m := range messages {
		poison(m.ProtoReflect())
	}
	return messages
}

// evilCluster is bankCluster with terminal commands in every text, and findings of all kinds.
func evilCluster() *fakeCluster {
	c := bankCluster()
	c.catalogue.Observers = c.catalogue.Observers[:1]
	c.observers = c.observers[1:]
	c.nodes[1].Blocked, c.nodes[1].Version, c.status.WriteBlocked = "x", "x", "x"
	c.status.Addresses = []string{"x"}
	c.whole = &pb.ClusterStatusResponse{Findings: []*pb.Finding{
		{Kind: "x", Subject: "x", Text: "x", Remedy: "x"},
	}}
	c.schedules = []*pb.BackupSchedule{{Name: "x", Location: "x", Error: "x", Backup: "x", Tables: []string{"x"}}}
	c.backfills = []*pb.Backfill{{Name: "x", Error: "x", NextRow: []byte("x")}}
	c.history = []*pb.HistoryEntry{
		{Group: uint32(mvcc.GroupNotify),
			Cell:   &pb.Cell{Table: 16, Row: []byte("x"), Column: []byte("x")},
			Notify: &pb.Notify{Ts: 8, Attempts: 10, ParkedTs: 40, Error: "x"}},
		{Group: uint32(mvcc.GroupWrite),
			Cell:  &pb.Cell{Table: 16, Row: []byte("x"), Column: []byte("x")},
			Write: &pb.Write{CommitTs: 7, StartTs: 6, Value: []byte("x")}},
		{Group: uint32(mvcc.GroupLock), Cell: &pb.Cell{
			Table: 16, Row: []byte("x"), Column: []byte("x"),
		},
			Lock: &pb.Lock{
				StartTs: 9, Value: []byte("x"),
				Primary: &pb.Cell{Table: 16, Row: []byte("y"), Column: []byte("x")},
			}},
	}
	c.walked = func(req *pb.WalkRequest) *pb.WalkResponse {
		page := oneOfEachLock(&pb.WalkRequest{
			Group: req.Group, Column: []byte("bal"), FromRow: req.FromRow,
		})
		poisonAll(page.Entries)
		return page
	}
	c.verified = func(uint64) (*pb.VerifyTabletResponse, error) {
		return &pb.VerifyTabletResponse{
			Replicas: []*pb.ReplicaChecksum{{NodeId: 1, Error: evilName}},
		}, nil
	}
	poisonAll(c.tables)
	poisonAll(c.whole.Findings)
	poisonAll(c.nodes)
	poisonAll(c.tablets)
	poisonAll(c.observers)
	poisonAll(c.backfills)
	poisonAll(c.history)
	poison(c.catalogue.ProtoReflect())
	poison(c.status.ProtoReflect())
	return c
}

// evilLines are command lines of all commands that print text from outside.
var evilLines = [][]string{
	{"recover", "inspect", "--dir", evilName}, {"recover", "plan", evilName, "--dead", "7"},
	{"recover", "apply", evilName, "--dir", evilName}, {"recover", "verify"},
	{"grant", "reader", evilName, "--table", evilName}, {"revoke", evilName, "--table", evilName}, {"grants"},
	{"jobs"}, {"top", "--once"}, {"client", "ls"}, {"client", "ls", "--connections"}, {"client", "disconnect", evilName},
	{"token", "create", evilName, "--role", "operator"}, {"token", "ls"}, {"token", "revoke", evilName},
	{"status"}, {"doctor"}, {"debug", "zip", "@zip"}, {"node", "log-level", "info"}, {"node", "ls"}, {"node", "drain", evilName}, {"node", "drain", "2", "--wait"},
	{"node", "forget", evilName, "--yes"}, {"node", "forget", evilName},
	{"node", "forget", "2", "--yes"},
	{"table", "ls"}, {"table", "create", evilName, "--split", evilName},
	{"table", "drop", evilName}, {"table", "drop", evilName, "--yes"},
	{"tablet", "ls"}, {"tablet", "split", evilName, evilRow},
	{"tablet", "merge", evilName, evilRow},
	{"tablet", "move", "7", "--leader", "--to", evilName},
	{"tablet", "move", evilName, "--leader", "--to", "2"}, {"tablet", "describe", "7"}, {"verify"},
	{"observer", "ls"}, {"observer", "pause", evilName}, {"observer", "resume", evilName},
	{"observer", "limit", evilName, "3"},
	{"observer", "limit", "x", evilName}, {"observer", "replay", evilName},
	{"observer", "replay", evilName, "--wait"},
	{"observer", "retire", evilName}, {"observer", "retire", evilName, "--yes"},
	{"observer", "pause", "nobody" + evilName},
	{"notify", "ls"}, {"notify", "ls", "--observer", "nobody" + evilName},
	{"notify", "replay", evilName, evilRow},
	{"notify", "replay", evilName, "--all-parked"},
	{"notify", "replay", "nobody" + evilName, evilRow},
	{"lock", "ls"}, {"lock", "ls", "none" + evilName}, {"lock", "resolve", evilName, evilRow},
	{"lock", "resolve", "--all"},
	{"why", evilName, evilRow, evilName}, {"why", evilName, evilRow, "nobody" + evilName},
	{"history", evilName, evilRow},
	{"trace", evilName, evilRow}, {"trace", evilName, evilRow, "-o", "json"},
	{"trace", evilName, "none" + evilRow}, {"trace", evilName, evilRow, "--search", "x" + evilName},
	{"history", evilName, evilName, "--escape", "hex"}, {"cert", "show", "--certs", evilName},
	{"cert", "revoke", evilName, "--certs", evilName},
	{"cert", "gossip-key", evilName},
	{"cert", "create-ca", "--certs", evilName + "/no"},
	{"cert", "create-node", evilName, "--certs", evilName},
	{"cert", "create-client", evilName, "--certs", evilName}, {evilName}, {"table", evilName},
	{"status", "--" + evilName},
	{"cluster", "show"}, {"cluster", "finalize"}, {"cluster", "set", "history=" + evilName},
	{"cluster", "set", evilName + "=1"}, {"cluster", "set", "history=1h"},
	{"status", "--addr", evilName}, {"status", evilName}, {"help", evilName}, {"version"},
	// Of the repository in memory:
	{"get", evilName, evilRow}, {"get", evilName, evilRow, evilRow},
	{"get", evilName, "none" + evilRow}, {"scan", evilName}, {"watch", evilName, "--initial", "--limit", "1"},
	{"subscription", "ls"}, {"subscription", "delete", evilName},
	{"scan", evilName, "--at", evilName}, {"set", evilName, evilRow, evilRow, evilRow},
	{"delete", evilName, evilRow, evilRow}, {"column", "delete", evilName, evilRow, "--yes"},
	{"table", "set", evilName, "--expire-after", evilRow + "=30d"}, {"table", "set", evilName, "--expire-after", evilRow},
	{"backup", "create", "@" + strings.ReplaceAll(evilName, "/", ""), "--table", evilName},
	{"backup", "ls", "@" + strings.ReplaceAll(evilName, "/", "")},
	{"backup", "verify", "@" + strings.ReplaceAll(evilName, "/", ""), evilName},
	{"backup", "release", evilName},
	{"backup", "prune", "@" + strings.ReplaceAll(evilName, "/", ""), "--keep", "1d", "--yes"},
	{"backup", "schedule", "ls"}, {"backup", "schedule", "run", evilName},
	{"backup", "schedule", "rm", evilName}, {"backup", "schedule", "set", evilName, evilName},
	{"backup", "schedule", "set", evilName, evilName, "--first", evilName},
	{"restore", "@" + strings.ReplaceAll(evilName, "/", ""), "--backup", evilName},
	{"export", evilName, "--quiet"}, {
		"export", evilName, "@" + strings.ReplaceAll(evilName, "/", ""),
	}, {"load", evilName, "-"},
	{"load", evilName, "-", "--skip-bad", "5"}, {"load", evilName, "-", "--dry-run"},
	{"load", evilName, "@" + evilName},
}

// evilTransport answers the commands: cells from memory, everything else prepared.
type evilTransport struct {
	*fakeCluster
	cells *txntest.Process
	asked *int // number of listings of nodes: the drain under way ends with the second
}

func (e evilTransport) AdminConn() grpc.ClientConnInterface {
	return admin.Conn(evilAdmin{fakeAdmin{fakeCluster: e.fakeCluster}, e.asked})
}

type evilAdmin struct {
	fakeAdmin
	asked *int
}

func (e evilAdmin) Nodes(ctx context.Context, req *pb.NodesRequest) (*pb.NodesResponse, error) {
	if *e.asked++; *e.asked > 1 {
		e.nodes[1].State = pb.NodeState_NODE_STATE_DRAINED
	}
	return e.fakeAdmin.Nodes(ctx, req)
}

func (e evilTransport) Send(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if e.fail != nil || req.GetWalk() != nil || req.GetHistory() != nil {
		return e.fakeCluster.Send(ctx, d, req)
	}
	return e.cells.Send(ctx, d, req)
}

func (e evilTransport) Timestamps(ctx context.Context, n int) (mvcc.Timestamp, int, error) {
	return e.cells.Timestamps(ctx, n)
}

func (e evilTransport) Locate(ctx context.Context, t mvcc.TableID, row string,
	n int) ([]*pb.TabletDescriptor, error) {
	if e.fail != nil {
		return nil, e.fail
	}
	return e.cells.Locate(ctx, t, row, n)
}

func (e evilTransport) HoldHistory(context.Context, *pb.HoldHistoryRequest) (*pb.HoldHistoryResponse, error) {
	return &pb.HoldHistoryResponse{
		KnowsSubscriptions: true, Subscriptions: []*pb.Subscription{{Name: evilName, By: evilName, Position: 1 << 40}},
	}, e.fail
}

// onlyText fails if a terminal would find a command in the output.
func onlyText(t *testing.T, line []string, printed string) {
	t.Helper()
	for i := 0; i < len(printed); {
		r, size := utf8.DecodeRuneInString(printed[i:])
		if r == utf8.RuneError && size == 1 || unicode.IsControl(r) && r != '\n' && r != '\t' {
			t.Fatalf("%q prints %q", line, printed[max(0, i-40):min(len(printed), i+40)])
		}
		i += size
	}
}

// TestNothingCommandsTheTerminal runs every command that prints, over a repository full of terminal
// commands, and with an answer that fails with such a text.
func TestNothingCommandsTheTerminal(t *testing.T) {
	t.Chdir(t.TempDir()) // some commands create files with the given names
	cells := txntest.New()
	id := cells.AddTable(evilName)
	seen := map[string]bool{}
	for _, line := range evilLines {
		for _, form := range [][]string{nil, {"-o", "json"}} {
			for _, fail := range []error{nil,
				&txn.ServerError{Code: pb.Error_CODE_INVALID, Message: evilName}} {
				cluster := evilCluster()
				cluster.tables[0].Id = uint32(id)
				args := append([]string{}, line...)
				for i, arg := range args {
					if name, ours := strings.CutPrefix(arg, "@"); ours {
						args[i] = filepath.Join(t.TempDir(), name)
					}
				}
				var out, errs bytes.Buffer
				app := &shell.App{
					Name: "percolator", Version: "v1", Stdout: &out, Stderr: &errs,
					Terminal: func(any) bool {
						return true
					},
					Stdin: strings.NewReader(`{"row":"r","columns":{"c":"\u001b[31m\u009b"}}` +
						"\n" + evilRow + "\n"),
					Connect: func(context.Context, []string, rpc.ClientConfig) (txn.Transport,
						error) {
						return evilTransport{cluster, cells.Process(1, 1), new(int)}, nil
					},
				}
				set := []string{"set", evilName, evilRow, evilRow, evilRow}
				if code := Run(t.Context(), app, set); code != shell.ExitDone {
					t.Fatalf("exit code %d: %s", code, errs.String())
				}
				out.Reset()
				errs.Reset()
				cluster.fail = fail
				Run(t.Context(), app, append(args, form...))
				onlyText(t, line, out.String())
				// progress is drawn in place
				onlyText(t, line, strings.ReplaceAll(errs.String(), "\r", ""))
				if form != nil && !json.Valid(out.Bytes()) {
					for object := range strings.Lines(out.String()) {
						if !json.Valid([]byte(object)) {
							t.Errorf("%q prints %q, which is no JSON", line, object)
						}
					}
				}
			}
		}
		for n := range min(3, len(line)) {
			seen[strings.Join(line[:n+1], " ")] = true
		}
	}
	for _, cmd := range commands(t) {
		path := strings.TrimPrefix(cmd.CommandPath(), "percolator ")
		switch path {
		case "percolator", "start", "dev", "completion": // they print only this program's own text
		default:
			if !seen[path] {
				t.Errorf("no line for %s", path)
			}
		}
	}
}

// TestWhyQuotes: advice about a row whose name is shell syntax is harmless.
func TestWhyQuotes(t *testing.T) {
	cluster := bankCluster()
	cluster.observers[1].Info.Paused = false
	cluster.history = []*pb.HistoryEntry{parseEntry(t, "$(touch /tmp/x)", "W bal 9 7 put x")}
	code, stdout, stderr := runApp(t, cluster, nil, "why", "bank", "$(touch /tmp/x)", "count")
	if want := "`percolator notify replay count '$(touch /tmp/x)'`"; code != shell.ExitDone ||
		!strings.Contains(stdout, want) {
		t.Errorf("exit code %d, no %s in\n%s%s", code, want, stdout, stderr)
	}
}

// TestPromptEndsItsLine: if the prompt is not answered, the error starts on a new line.
func TestPromptEndsItsLine(t *testing.T) {
	var errs bytes.Buffer
	app := &shell.App{
		Name: "percolator", Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &errs,
		Terminal: func(any) bool { return true },
	}
	code := Run(t.Context(), app, []string{"backup", "prune", t.TempDir(), "--keep", "1d"})
	if code != shell.ExitUsage || !strings.Contains(errs.String(), " to continue: \npercolator backup prune: ") {
		t.Errorf("exit code %d: %q", code, errs.String())
	}
}
