package certs

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// Tokens for logging in with a browser instead of a certificate: 256 random bits as text. The creator
// sends only the hash to the cluster. Stateless.

// tokenPrefix lets scanners find leaked tokens in files; tokenBytes is the number of random bytes
// that follow, in base64.
const (
	tokenPrefix = "percolator_"
	tokenBytes  = 32
)

// NewToken returns a new token and its hash.
func NewToken() (secret string, hash []byte) {
	random := make([]byte, tokenBytes)
	_, _ = rand.Read(random) // never fails
	secret = tokenPrefix + base64.RawURLEncoding.EncodeToString(random)
	hash, _ = TokenHash(secret)
	return secret, hash
}

// TokenHash returns the hash that the cluster stores for the token; ok is false for a text that is
// not a token. A single unsalted hash suffices, because 256 random bits cannot be guessed.
func TokenHash(secret string) (hash []byte, ok bool) {
	text, ok := strings.CutPrefix(secret, tokenPrefix)
	if !ok || len(text) != base64.RawURLEncoding.EncodedLen(tokenBytes) {
		return nil, false
	}
	sum := sha256.Sum256([]byte(secret))
	return sum[:], true
}
