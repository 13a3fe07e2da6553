package meta

import (
	"bytes"
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Login tokens of the console and the gateway: one record, read at each use of a token, by the
// gateway at most once a second for each token. The record holds only the hash of a token's secret,
// so reading meta does not allow a login. Times are those of the node that handles the request.

const (
	rowTokens = "tokens"
	// maxTokens limits the number of tokens, maxTokenName the bytes of a name, maxTokenTTL the
	// validity of a token.
	maxTokens    = 256
	maxTokenName = 64
	maxTokenTTL  = 90 * 24 * time.Hour
)

// tokenRoles are the roles of tokens.
var tokenRoles = []string{"reader", "writer", "observer", "operator"}

// Tokens are the tokens of the console and the gateway.
type Tokens struct{ records }

// Create adds a token with the requested validity. CODE_INVALID if the request is invalid, or if
// a valid token with another secret has its name; CODE_TOO_LARGE beyond maxTokens.
func (t *Tokens) Create(ctx context.Context, req *pb.CreateTokenRequest,
	now time.Time) (*pb.Token, error) {
	if err := checkToken(req); err != nil {
		return nil, err
	}
	made := &pb.Token{
		Name: req.Name, Role: req.Role, Hash: req.Hash, CreatedUnixMs: now.UnixMilli(),
		ExpiresUnixMs: now.UnixMilli() + req.TtlMs,
	}
	record, err := update(ctx, t.records, rowTokens,
		func(have *pb.TokenRecord) (*pb.TokenRecord, []change, error) {
			// Expired tokens do not count.
			kept := slices.DeleteFunc(slices.Clone(have.GetTokens()), func(k *pb.Token) bool {
				return expired(k, now)
			})
			at, taken := slices.BinarySearchFunc(kept, made.Name, byTokenName)
			switch {
			case taken && bytes.Equal(kept[at].Hash, made.Hash): // an earlier response was lost
				return have, nil, nil
			case taken:
				return nil, nil, refuse(pb.Error_CODE_INVALID, "token %q already exists: use "+
					"another name, or `percolator token revoke` it first", made.Name)
			case len(kept) >= maxTokens:
				return nil, nil, refuse(pb.Error_CODE_TOO_LARGE, "there are %d tokens, "+
					"the maximum: revoke some with `percolator token revoke`", maxTokens)
			}
			return &pb.TokenRecord{Tokens: slices.Insert(kept, at, made)}, nil, nil
		})
	if err != nil {
		return nil, err
	}
	at, _ := slices.BinarySearchFunc(record.Tokens, made.Name, byTokenName)
	return withoutHash(record.Tokens[at]), nil
}

// checkToken rejects an invalid request for a token.
func checkToken(req *pb.CreateTokenRequest) error {
	ttl := time.Duration(req.TtlMs) * time.Millisecond
	switch {
	case req.Name == "" || len(req.Name) > maxTokenName ||
		strings.ContainsFunc(req.Name, func(r rune) bool { return !unicode.IsGraphic(r) }):
		return refuse(pb.Error_CODE_INVALID, "a token's name must have 1 to %d printable bytes",
			maxTokenName)
	case !slices.Contains(tokenRoles, req.Role):
		return refuse(pb.Error_CODE_INVALID, "%q is not a role of a token: use %s", req.Role,
			strings.Join(tokenRoles, ", "))
	case req.TtlMs <= 0 || req.TtlMs > maxTokenTTL.Milliseconds():
		return refuse(pb.Error_CODE_INVALID,
			"a token's validity must be positive and at most %v, not %v", maxTokenTTL, ttl)
	case len(req.Hash) != sha256.Size:
		return refuse(pb.Error_CODE_INVALID, "a token's hash must have %d bytes, not %d", sha256.Size,
			len(req.Hash))
	}
	return nil
}

// List returns the tokens in the order of names, without their hashes.
func (t *Tokens) List(ctx context.Context) ([]*pb.Token, error) {
	record, _, err := load[*pb.TokenRecord](ctx, t.records, rowTokens)
	if err != nil {
		return nil, err
	}
	out := make([]*pb.Token, len(record.Tokens))
	for i, k := range record.Tokens {
		out[i] = withoutHash(k)
	}
	return out, nil
}

// Revoke removes the token. CODE_INVALID if it does not exist.
func (t *Tokens) Revoke(ctx context.Context, name string) error {
	_, err := update(ctx, t.records, rowTokens,
		func(have *pb.TokenRecord) (*pb.TokenRecord, []change, error) {
			at, ok := slices.BinarySearchFunc(have.GetTokens(), name, byTokenName)
			if !ok {
				return nil, nil, refuse(pb.Error_CODE_INVALID,
					"there is no token %q: `percolator token ls` lists them", name)
			}
			return &pb.TokenRecord{Tokens: slices.Delete(have.Tokens, at, at+1)}, nil, nil
		})
	return err
}

// Find returns the token whose secret has the hash, or nil. It may have expired: see TokenValid.
func (t *Tokens) Find(ctx context.Context, hash []byte) (*pb.Token, error) {
	record, _, err := load[*pb.TokenRecord](ctx, t.records, rowTokens)
	if err != nil {
		return nil, err
	}
	for _, k := range record.Tokens {
		if bytes.Equal(k.Hash, hash) {
			return withoutHash(k), nil
		}
	}
	return nil, nil
}

// TokenValid reports whether the token has not expired.
func TokenValid(t *pb.Token, now time.Time) bool { return !expired(t, now) }

func expired(t *pb.Token, now time.Time) bool { return now.UnixMilli() >= t.ExpiresUnixMs }

func byTokenName(t *pb.Token, name string) int { return strings.Compare(t.Name, name) }

func withoutHash(t *pb.Token) *pb.Token {
	out := proto.CloneOf(t)
	out.Hash = nil
	return out
}
