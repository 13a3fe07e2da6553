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

// gossipKeyBytes is the length of new keys: AES-256. Keys of 16 and 24 bytes are read as well.
const gossipKeyBytes = 32

// maxGossipKeys bounds the file: a rotation needs two.
const maxGossipKeys = 16

// ReadGossipKeys reads dir's gossip.keys: the first encrypts, all decrypt. There is at least one.
func ReadGossipKeys(dir string) ([][]byte, error) {
	path := filepath.Join(dir, GossipKeys)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; copy it from where the authority was made", ErrFiles, err)
	}
	var keys [][]byte
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != 16 && len(key) != 24 && len(key) != 32 {
			return nil, fmt.Errorf("%w: %s: key %d is not 16, 24 or 32 bytes in base64", ErrFiles,
				path, len(keys)+1)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 || len(keys) > maxGossipKeys {
		return nil, fmt.Errorf("%w: %s has %d keys, want 1 to %d", ErrFiles, path, len(keys),
			maxGossipKeys)
	}
	return keys, nil
}

// Step is one of the three steps that replace the gossip key. After each, gossip.keys
// goes to every node before the next.
type Step string

// The steps, in order.
const (
	AddKey  Step = "add"  // a new key that is accepted
	UseKey  Step = "use"  // the newest key encrypts
	DropOld Step = "drop" // only the one that encrypts stays
)

// notUsed stands before a key that was added and has not been used. Whoever reads the
// keys takes it for a comment.
const notUsed = "# added, not used yet"

// ErrNotUsed reports that the newest key would be dropped, which was added and has never encrypted.
var ErrNotUsed = fmt.Errorf("%w: the key that was added last is not used yet, and would be dropped",
	ErrFiles)

// RotateGossipKey carries out a step on dir's gossip.keys, and returns how many keys
// there are then. The key that encrypts stays in every step. force drops a key that was
// added and is not used yet. Errors: ErrFiles, ErrNotUsed.
func RotateGossipKey(dir string, step Step, force bool) (int, error) {
	keys, err := ReadGossipKeys(dir)
	if err != nil {
		return 0, err
	}
	comment := ""
	switch step {
	case AddKey:
		if len(keys) == maxGossipKeys {
			return 0, fmt.Errorf("%w: there are %d keys already; drop the old ones first", ErrFiles,
				len(keys))
		}
		key, err := newGossipKey()
		if err != nil {
			return 0, err
		}
		keys, comment = append(keys, key), notUsed
	case UseKey:
		if len(keys) < 2 {
			return 0, fmt.Errorf("%w: there is one key only; add one first", ErrFiles)
		}
		last := len(keys) - 1
		keys = append([][]byte{keys[last]}, keys[:last]...)
	case DropOld:
		text, err := os.ReadFile(filepath.Join(dir, GossipKeys))
		if err != nil {
			return 0, fmt.Errorf("%w: %w", ErrFiles, err)
		}
		if bytes.Contains(text, []byte(notUsed)) && !force {
			return 0, ErrNotUsed
		}
		keys = keys[:1]
	default:
		return 0, fmt.Errorf("%w: %q is no step; they are add, use and drop", ErrFiles, step)
	}
	return len(keys), writeFile(filepath.Join(dir, GossipKeys), formatGossipKeys(keys, comment),
		keyMode)
}

func newGossipKey() ([]byte, error) {
	key := make([]byte, gossipKeyBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("certs: %w", err)
	}
	return key, nil
}

// formatGossipKeys writes a key a line. The comment, if there is one, stands before the last.
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
