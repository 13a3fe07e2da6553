package meta

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// tokensBegun is the time at which the tests of tokens begin.
var tokensBegun = time.UnixMilli(1_000_000)

func hashOf(secret string) []byte {
	hash := sha256.Sum256([]byte(secret))
	return hash[:]
}

// tokenRequest requests an operator's token valid for an hour.
func tokenRequest(name, secret string) *pb.CreateTokenRequest {
	return &pb.CreateTokenRequest{
		Name: name, Role: "operator", TtlMs: time.Hour.Milliseconds(), Hash: hashOf(secret),
	}
}

// tokenRefused requires an error of meta with a reason.
func tokenRefused(t *testing.T, what string, err error) {
	t.Helper()
	var e *txn.ServerError
	if !errors.As(err, &e) || e.Code == pb.Error_CODE_UNKNOWN {
		t.Errorf("%s: %v", what, err)
	}
}

// TestTokens: a token is found by its secret until it is revoked, expires or is replaced by another
// of its name; meta never stores the secret.
func TestTokens(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, m := newWorld(t)
	now := tokensBegun
	if k, err := m.Tokens.Find(ctx, hashOf("s")); k != nil || err != nil {
		t.Errorf("before there are any: %v, %v", k, err)
	}
	for range 2 { // as after a lost answer
		k, err := m.Tokens.Create(ctx, tokenRequest("ann", "s"), now)
		if err != nil || k.Name != "ann" || k.ExpiresUnixMs != 4_600_000 || k.Hash != nil {
			t.Errorf("%v, %v", k, err)
		}
	}
	k, err := m.Tokens.Find(ctx, hashOf("s"))
	if err != nil || k.GetName() != "ann" || k.Hash != nil || !TokenValid(k, now.Add(time.Hour-1)) ||
		TokenValid(k, now.Add(time.Hour)) {
		t.Errorf("found %v, %v", k, err)
	}
	value, err := m.Tokens.get(ctx, rowTokens)
	if err != nil || len(value) == 0 || strings.Contains(string(value), "\"s\"") {
		t.Errorf("%q, %v", value, err)
	}
	_, err = m.Tokens.Create(ctx, tokenRequest("ann", "other"), now)
	tokenRefused(t, "its name is taken", err)
	if _, err := m.Tokens.Create(ctx, tokenRequest("ann", "new"), now.Add(time.Hour)); err != nil {
		t.Errorf("instead of one that has expired: %v", err)
	}
	if k, err := m.Tokens.Find(ctx, hashOf("s")); k != nil || err != nil {
		t.Errorf("the one that was replaced: %v, %v", k, err)
	}
	if err := m.Tokens.Revoke(ctx, "ann"); err != nil {
		t.Error(err)
	}
	if k, err := m.Tokens.Find(ctx, hashOf("new")); k != nil || err != nil {
		t.Errorf("revoked: %v, %v", k, err)
	}
	tokenRefused(t, "revoked twice", m.Tokens.Revoke(ctx, "ann"))
}

// TestTokensRefused: invalid tokens are refused.
func TestTokensRefused(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, m := newWorld(t)
	if _, err := m.Tokens.Create(ctx, tokenRequest("ann", "s"), tokensBegun); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*pb.CreateTokenRequest){
		"no name":       func(r *pb.CreateTokenRequest) { r.Name = "" },
		"a long name":   func(r *pb.CreateTokenRequest) { r.Name = strings.Repeat("x", 65) },
		"escapes":       func(r *pb.CreateTokenRequest) { r.Name = "\x1b[2J" },
		"a client":      func(r *pb.CreateTokenRequest) { r.Role = "client" },
		"a node":        func(r *pb.CreateTokenRequest) { r.Role = "node" },
		"no time":       func(r *pb.CreateTokenRequest) { r.TtlMs = 0 },
		"a year":        func(r *pb.CreateTokenRequest) { r.TtlMs *= 24 * 365 },
		"the secret":    func(r *pb.CreateTokenRequest) { r.Hash = []byte("secret") },
		"time below 0":  func(r *pb.CreateTokenRequest) { r.TtlMs = -1 },
		"time overflow": func(r *pb.CreateTokenRequest) { r.TtlMs = 1<<63 - 1 },
	} {
		r := tokenRequest("bob", "b")
		change(r)
		_, err := m.Tokens.Create(ctx, r, tokensBegun)
		tokenRefused(t, what, err)
	}
}

// TestTokensAreBounded: the number of tokens is bounded; expired ones free their places.
func TestTokensAreBounded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, m := newWorld(t)
	now := tokensBegun
	for i := range maxTokens {
		if _, err := m.Tokens.Create(ctx, tokenRequest(fmt.Sprint(i), fmt.Sprint(i)), now); err != nil {
			t.Fatal(err)
		}
	}
	_, err := m.Tokens.Create(ctx, tokenRequest("more", "more"), now)
	tokenRefused(t, "too many", err)
	if all, err := m.Tokens.List(ctx); err != nil || len(all) != maxTokens || all[0].Hash != nil {
		t.Errorf("%d tokens, %v", len(all), err)
	}
	if _, err := m.Tokens.Create(ctx, tokenRequest("more", "more"), now.Add(time.Hour)); err != nil {
		t.Errorf("those that have expired make no room: %v", err)
	}
}
