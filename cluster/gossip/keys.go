package gossip

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/memberlist"

	"github.com/percolator-go/percolator/internal/certs"
)

// Reading of gossip keys, and rotation of the ring while memberlist uses it. Runs on Open's
// goroutine first and then on that of rereadKeys, so the ring has one writer.

// ErrKeys reports that the gossip keys cannot be used.
var ErrKeys = errors.New("gossip: no usable keys")

// readKeys reads the keys in a folder of certificates: the first encrypts, all decrypt.
func readKeys(dir string) ([][]byte, error) {
	keys, err := certs.ReadGossipKeys(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: read the key file: %w", ErrKeys, err)
	}
	return keys, nil
}

// CheckKeys returns why the keys in a folder of certificates cannot be used, nil if they
// can.
func CheckKeys(dir string) error {
	_, err := readKeys(dir)
	return err
}

// rotate changes the ring to these keys in this order while it is in use. It removes keys
// only from the ring's end, because memberlist would otherwise move keys within an array
// that other goroutines read.
func rotate(ring *memberlist.Keyring, keys [][]byte) error {
	for _, key := range keys {
		if err := ring.AddKey(key); err != nil {
			return fmt.Errorf("%w: add a key: %w", ErrKeys, err)
		}
	}
	// UseKey moves a key to the front, so the keys to be removed end up last.
	for _, key := range slices.Backward(keys) {
		if err := ring.UseKey(key); err != nil {
			return fmt.Errorf("%w: use a key: %w", ErrKeys, err)
		}
	}
	for {
		have := ring.GetKeys()
		last := have[len(have)-1]
		if slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, last) }) {
			return nil
		}
		if err := ring.RemoveKey(last); err != nil {
			return fmt.Errorf("%w: remove a key: %w", ErrKeys, err)
		}
	}
}

// sameKeys reports whether the ring already holds these keys in this order.
func sameKeys(ring *memberlist.Keyring, keys [][]byte) bool {
	return slices.EqualFunc(ring.GetKeys(), keys, bytes.Equal)
}
