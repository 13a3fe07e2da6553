package certs

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// gossipKeyBytes is the length of every key: AES-256. A node could not replace keys of different
// lengths while it gossips.
const gossipKeyBytes = 32

// maxGossipKeys limits the keys in the file; a rotation needs two.
const maxGossipKeys = 16

// ReadGossipKeys reads dir's gossip.keys and returns 1 to maxGossipKeys keys: the first encrypts,
// all decrypt.
func ReadGossipKeys(dir string) ([][]byte, error) {
	path := filepath.Join(dir, GossipKeys)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; copy it from the folder in which the authority was created", ErrFiles, err)
	}
	var keys [][]byte
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != gossipKeyBytes {
			return nil, fmt.Errorf("%w: %s: key %d is not %d bytes in base64", ErrFiles, path, len(keys)+1,
				gossipKeyBytes)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 || len(keys) > maxGossipKeys {
		return nil, fmt.Errorf("%w: %s contains %d keys, want 1 to %d", ErrFiles, path, len(keys),
			maxGossipKeys)
	}
	return keys, nil
}

// Step is one of the three steps that replace the gossip key. After each step gossip.keys must be
// copied to every node before the next one.
type Step string

// The steps, in order.
const (
	AddKey  Step = "add"  // a new key that is accepted
	UseKey  Step = "use"  // the last key in the file, after AddKey the newest, encrypts
	DropOld Step = "drop" // only the key that encrypts stays
)

// notUsed precedes a key that was added but never used. ReadGossipKeys skips it as a comment.
const notUsed = "# added, not used yet"

// ErrNotUsed reports that DropOld would drop the newest key, which was added but never used.
var ErrNotUsed = fmt.Errorf("%w: the gossip key added last is not in use yet and would be dropped",
	ErrFiles)

// RotateGossipKey executes a step on dir's gossip.keys and returns the new number of keys. No step
// removes the key that encrypts. force permits dropping a key that was added but never used. Errors:
// ErrFiles, ErrNotUsed.
func RotateGossipKey(dir string, step Step, force bool) (int, error) {
	keys, err := ReadGossipKeys(dir)
	if err != nil {
		return 0, err
	}
	comment := ""
	switch step {
	case AddKey:
		if len(keys) == maxGossipKeys {
			return 0, fmt.Errorf("%w: %s has %d keys already; drop the old ones first", ErrFiles,
				filepath.Join(dir, GossipKeys), len(keys))
		}
		keys, comment = append(keys, newGossipKey()), notUsed
	case UseKey:
		if len(keys) < 2 {
			return 0, fmt.Errorf("%w: %s has only one key; add one first", ErrFiles,
				filepath.Join(dir, GossipKeys))
		}
		last := len(keys) - 1
		keys = append([][]byte{keys[last]}, keys[:last]...)
	case DropOld:
		text, err := os.ReadFile(filepath.Join(dir, GossipKeys))
		if err != nil {
			return 0, fmt.Errorf("%w: read the gossip keys: %w", ErrFiles, err)
		}
		if bytes.Contains(text, []byte(notUsed)) && !force {
			return 0, ErrNotUsed
		}
		keys = keys[:1]
	default:
		return 0, fmt.Errorf("%w: unknown step %q; use add, use or drop", ErrFiles, step)
	}
	return len(keys), writeFile(filepath.Join(dir, GossipKeys), formatGossipKeys(keys, comment),
		keyMode)
}

func newGossipKey() []byte {
	key := make([]byte, gossipKeyBytes)
	_, _ = rand.Read(key) // never fails
	return key
}

// formatGossipKeys formats one key per line. A comment precedes the last one.
func formatGossipKeys(keys [][]byte, comment string) []byte {
	var b bytes.Buffer
	for i, key := range keys {
		if comment != "" && i == len(keys)-1 {
			fmt.Fprintln(&b, comment)
		}
		fmt.Fprintln(&b, base64.StdEncoding.EncodeToString(key))
	}
	return b.Bytes()
}
