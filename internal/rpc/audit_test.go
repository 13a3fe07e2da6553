package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/certs/certstest"
	"github.com/percolator-go/percolator/internal/txn"
)

// audited returns the lines of the audit log so far and empties it.
func (l *lockedLog) audited() (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, "msg=audit ") {
			lines = append(lines, line)
		}
	}
	l.text.Reset()
	return lines
}

// TestEachActIsAudited: every call above the role writer, and every call that creates a table,
// replays notifications or holds history for a backup, leaves one line, by whatever role, executed
// or refused, and whatever the log's level. Of some frequent calls only refusals leave one. Nothing
// else does.
func TestEachActIsAudited(t *testing.T) {
	var log lockedLog
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError + 1}))
	call := func(who Caller, full string, req any) {
		_, _ = NewGuard(logger, nil, nil).Call(t.Context(), who, full, req, func() (any, error) { return nil, nil })
	}
	roles := append(certs.ClientRoles(), certs.Client, certs.Node)
	methods(t, func(name, full string, request, _ proto.Message) {
		least := leastRoles[name]
		act := !certs.Writer.Includes(least) || name == "CreateTable" || name == "ReplayParked" ||
			name == "ReplayRow" || name == "HoldBackup"
		for _, role := range roles {
			call(Caller{Role: role, Name: "ann", By: ByCertificate, From: "1.2.3.4:5"}, full, request)
			lines := log.audited()
			outcome := "refused"
			if role.Includes(least) {
				outcome = "done"
			}
			switch {
			// Of copies only the table and refusals are audited; of frequent queries, refusals.
			case !act, slices.Contains([]string{"RestoreCells", "PendingNotifications", "Clients", "Work"}, name) &&
				outcome == "done":
				if len(lines) != 0 {
					t.Errorf("%s, of a %s: %v", name, role, lines)
				}
			case len(lines) != 1 || !strings.Contains(lines[0], "level=INFO msg=audit method="+name+
				" outcome="+outcome+" role="+string(role)+" name=ann by=certificate from=1.2.3.4:5"):
				t.Errorf("UNAUDITED: %s, of a %s: %q", name, role, lines)
			}
		}
	})
	for _, c := range []struct {
		name string
		req  any
		want string
	}{
		{"ClusterPolicy", &pb.ClusterPolicyRequest{Set: &pb.Policy{Replicas: proto.Uint64(5)}},
			"request.set.replicas=5"},
		{"Backfill", &pb.BackfillRequest{Name: "o", Action: pb.BackfillRequest_ACTION_START},
			"request.action=ACTION_START"},
		{"DropTable", &pb.DropTableRequest{Name: "t\x1b]0;x\x07", Id: 17},
			`request.name=t\x1b]0;x\a`},
		{"CreateTable", &pb.CreateTableRequest{Name: "t", SplitKeys: [][]byte{[]byte("secret")}},
			"request.split_keys_count=1"},
		{"SplitTablet", &pb.SplitTabletRequest{Table: "t", Row: []byte("secret")},
			"request.row_bytes=6"},
	} {
		full := adminMethods + c.name
		if _, ok := calls[full]; !ok {
			full = percolatorMethods + c.name
		}
		call(Caller{Role: certs.Operator, Name: "ann\x1b[2J"}, full, c.req)
		lines := log.audited()
		if len(lines) != 1 || !strings.Contains(lines[0], c.want) ||
			strings.Contains(lines[0], "secret") || strings.ContainsAny(lines[0], "\x1b\x07") {
			t.Errorf("UNAUDITED: %s: %q does not have %s", c.name, lines, c.want)
		}
	}
}

// TestWhatBecameOfAnAct: a line has the service's result, also of a panic.
func TestWhatBecameOfAnAct(t *testing.T) {
	var log lockedLog
	logger := slog.New(slog.NewTextHandler(&log, nil))
	refused := &txn.ServerError{Code: pb.Error_CODE_INVALID, Message: "node 3\nis alive"}
	for want, err := range map[string]error{
		`outcome=refused role=operator name=ann by="" from="" error="node 3\\nis alive"`: refused,
		`outcome=failed role=operator name=ann by="" from="" error="`: errors.New(
			"no quorum" + strings.Repeat("x", 1000)),
	} {
		for _, err := range []error{err, toStatus(err)} {
			_, _ = NewGuard(logger, nil, nil).Call(t.Context(), Caller{Role: certs.Operator, Name: "ann"},
				pb.Admin_ForgetNode_FullMethodName, nil, func() (any, error) { return nil, err })
			if lines := log.audited(); len(lines) != 1 || !strings.Contains(lines[0], want) ||
				len(lines[0]) > 600 {
				t.Errorf("%q does not have %s", lines, want)
			}
		}
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = NewGuard(logger, nil, nil).Call(t.Context(), Caller{Role: certs.Operator},
			pb.Admin_ForgetNode_FullMethodName, nil, func() (any, error) { panic("bad luck") })
	}()
	if lines := log.audited(); len(lines) != 1 || !strings.Contains(lines[0], "error=panic") {
		t.Errorf("a panic: %q", lines)
	}
}

// TestAuditKnowsTheCaller: over the network a line has the certificate's role and name and the
// client's address, and in plain text states that the caller is unknown.
func TestAuditKnowsTheCaller(t *testing.T) {
	var log lockedLog
	dir := certstest.Folder(t, "127.0.0.1")
	addr := secured(t, dir, slog.New(slog.NewJSONHandler(&log, nil)), nil)
	for role, c := range roleClients(t, dir, addr) {
		_, _ = pb.NewAdminClient(c.AdminConn()).DrainNode(t.Context(), &pb.DrainNodeRequest{NodeId: 3})
		text := log.String()
		log.audited()
		if strings.Count(text, `"msg":"audit"`) != 1 ||
			!strings.Contains(text, `"role":"`+string(role)+`","name":"`) ||
			!strings.Contains(text, `"by":"certificate","from":"127.0.0.1:`) ||
			!strings.Contains(text, `"request":{"node_id":3}`) {
			t.Errorf("%s: %s", role, text)
		}
	}
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: &net.TCPAddr{Port: 7}})
	who, err := callerOf(ctx, &ServerConfig{})
	if err != nil || who != (Caller{Role: certs.Node, By: ByNothing, From: ":7"}) {
		t.Errorf("in clear text: %+v, %v", who, err)
	}
}
