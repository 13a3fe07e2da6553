package certs

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// A token is for people who log in with a browser, in place of a certificate: 256 random
// bits as text. Whoever makes one sends only its hash to the cluster. The functions here
// keep nothing.

// tokenPrefix has tokens be found in files where they should not be; tokenBytes is how many
// random bytes follow, in base64.
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

// TokenHash returns the hash by which a cluster knows the token; ok is false for what
// cannot be a token. One hash is enough: nobody can try 256 bits.
func TokenHash(secret string) (hash []byte, ok bool) {
	text, ok := strings.CutPrefix(secret, tokenPrefix)
	if !ok || len(text) != base64.RawURLEncoding.EncodedLen(tokenBytes) {
		return nil, false
	}
	sum := sha256.Sum256([]byte(secret))
	return sum[:], true
}
