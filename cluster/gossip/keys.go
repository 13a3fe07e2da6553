package gossip

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/memberlist"
)

// ErrKeys: the file of gossip keys cannot be used.
var ErrKeys = errors.New("gossip: no usable keys")

// Bounds of the file of keys. All keys have one length, which selects AES-256.
const (
	keyBytes    = 32
	maxKeys     = 16
	maxKeysFile = 64 << 10
)

// readKeys reads a file of keys: one in base64 a line, the first encrypts. Empty lines and lines that begin with # are skipped.
func readKeys(name string) ([][]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeys, err)
	}
	if info.Size() > maxKeysFile {
		return nil, fmt.Errorf("%w: %s has %d bytes, at most %d", ErrKeys, name, info.Size(), maxKeysFile)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeys, err)
	}
	var keys [][]byte
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != keyBytes {
			return nil, fmt.Errorf("%w: %s, line %d: a key is %d bytes in base64", ErrKeys, name, i+1, keyBytes)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 || len(keys) > maxKeys {
		return nil, fmt.Errorf("%w: %s has %d keys, needs 1 to %d", ErrKeys, name, len(keys), maxKeys)
	}
	return keys, nil
}

// rotate makes the ring hold these keys, in this order, while it is in use. A key is removed only from the ring's end:
// elsewhere memberlist would move the others in an array that readers may be going through.
func rotate(ring *memberlist.Keyring, keys [][]byte) error {
	for _, key := range keys {
		if err := ring.AddKey(key); err != nil {
			return fmt.Errorf("%w: %w", ErrKeys, err)
		}
	}
	// Each key that is used goes to the front, so the ones to be removed end up last.
	for _, key := range slices.Backward(keys) {
		if err := ring.UseKey(key); err != nil {
			return fmt.Errorf("%w: %w", ErrKeys, err)
		}
	}
	for {
		have := ring.GetKeys()
		last := have[len(have)-1]
		if slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, last) }) {
			return nil
		}
		if err := ring.RemoveKey(last); err != nil {
			return fmt.Errorf("%w: %w", ErrKeys, err)
		}
	}
}

// sameKeys reports whether the ring holds these keys in this order already.
func sameKeys(ring *memberlist.Keyring, keys [][]byte) bool {
	return slices.EqualFunc(ring.GetKeys(), keys, bytes.Equal)
}
