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
			return nil, fmt.Errorf("%w: %s: key %d is not 16, 24 or 32 bytes in base64", ErrFiles, path, len(keys)+1)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 || len(keys) > maxGossipKeys {
		return nil, fmt.Errorf("%w: %s has %d keys, want 1 to %d", ErrFiles, path, len(keys), maxGossipKeys)
	}
	return keys, nil
}

// Step is one of the three steps that replace the gossip key. After each, gossip.keys goes to every node before the next.
type Step string

// The steps, in order.
const (
	AddKey  Step = "add"  // a new key that is accepted
	UseKey  Step = "use"  // the newest key encrypts
	DropOld Step = "drop" // only the one that encrypts stays
)

// RotateGossipKey carries out a step on dir's gossip.keys, and returns how many keys there are then.
func RotateGossipKey(dir string, step Step) (int, error) {
	keys, err := ReadGossipKeys(dir)
	if err != nil {
		return 0, err
	}
	switch step {
	case AddKey:
		if len(keys) == maxGossipKeys {
			return 0, fmt.Errorf("%w: there are %d keys already; drop the old ones first", ErrFiles, len(keys))
		}
		key, err := newGossipKey()
		if err != nil {
			return 0, err
		}
		keys = append(keys, key)
	case UseKey:
		if len(keys) < 2 {
			return 0, fmt.Errorf("%w: there is one key only; add one first", ErrFiles)
		}
		last := len(keys) - 1
		keys = append([][]byte{keys[last]}, keys[:last]...)
	case DropOld:
		keys = keys[:1]
	default:
		return 0, fmt.Errorf("%w: %q is no step; they are add, use and drop", ErrFiles, step)
	}
	return len(keys), writeFile(filepath.Join(dir, GossipKeys), formatGossipKeys(keys), keyMode)
}

func newGossipKey() ([]byte, error) {
	key := make([]byte, gossipKeyBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("certs: %w", err)
	}
	return key, nil
}

func formatGossipKeys(keys [][]byte) []byte {
	var b bytes.Buffer
	for _, key := range keys {
		fmt.Fprintln(&b, base64.StdEncoding.EncodeToString(key))
	}
	return b.Bytes()
}
