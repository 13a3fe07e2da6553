package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

func (f fakeAdmin) CreateToken(_ context.Context,
	req *pb.CreateTokenRequest) (*pb.CreateTokenResponse, error) {
	f.sent = append(f.sent, req)
	return &pb.CreateTokenResponse{Token: &pb.Token{
		Name: req.Name, Role: req.Role, ExpiresUnixMs: 4_000_000_000_000,
	}}, f.fail
}

func (f fakeAdmin) Tokens(context.Context, *pb.TokensRequest) (*pb.TokensResponse, error) {
	return &pb.TokensResponse{Tokens: []*pb.Token{
		{Name: "ann", Role: "operator", ExpiresUnixMs: 4_000_000_000_000},
		{Name: "\x1b]0;owned\x07\nnext: rm -rf /", Role: "rea\x9bder", ExpiresUnixMs: 1},
	}}, f.fail
}

func (f fakeAdmin) RevokeToken(_ context.Context,
	req *pb.RevokeTokenRequest) (*pb.RevokeTokenResponse, error) {
	f.sent = append(f.sent, req)
	if req.Name != "ann" {
		return nil, &txn.ServerError{Code: pb.Error_CODE_INVALID, Message: "there is no token"}
	}
	return &pb.RevokeTokenResponse{}, f.fail
}

// TestTokenCommands: create prints a secret that was not sent to the cluster, ls prints names as
// text whatever they contain, and revoke takes a name.
func TestTokenCommands(t *testing.T) {
	f := &fakeCluster{}
	code, stdout, stderr := runApp(t, f, nil, "token", "create", "ann", "--role", "operator", "--ttl", "30m")
	if code != 0 || !strings.HasPrefix(stdout, "percolator_") || len(stdout) != 55 ||
		!strings.Contains(stderr, "not shown again") {
		t.Errorf("%d %q %q", code, stdout, stderr)
	}
	req := f.sent[0].(*pb.CreateTokenRequest)
	hash := sha256.Sum256([]byte(strings.TrimSpace(stdout)))
	if hex.EncodeToString(req.Hash) != hex.EncodeToString(hash[:]) || req.TtlMs != 30*60_000 {
		t.Errorf("%v", req)
	}
	code, again, _ := runApp(t, f, nil, "token", "create", "ann", "--role", "operator", "-o", "json")
	if code != 0 || !strings.Contains(again, `"token":"percolator_`) ||
		strings.Contains(again, strings.TrimSpace(stdout)) {
		t.Errorf("%d %q", code, again)
	}
	if code, _, stderr := runApp(t, f, nil, "token", "create", "ann"); code != 2 ||
		!strings.Contains(stderr, "--role is missing") {
		t.Errorf("%d %q", code, stderr)
	}
	for _, args := range [][]string{{"token", "ls"}, {"token", "ls", "-o", "json"}} {
		code, stdout, _ := runApp(t, f, nil, args...)
		if code != 0 || strings.ContainsAny(stdout, "\x1b\x07\u009b") ||
			strings.Contains(stdout, "\nnext") || !strings.Contains(stdout, "ann") {
			t.Errorf("%v: %d %q", args, code, stdout)
		}
	}
	if code, stdout, _ := runApp(t, f, nil, "token", "revoke", "ann"); code != 0 ||
		!strings.Contains(stdout, "is revoked") {
		t.Errorf("%d %q", code, stdout)
	}
	if code, _, _ := runApp(t, f, nil, "token", "revoke", "eve"); code != 1 {
		t.Errorf("a token that is not there: %d", code)
	}
}
