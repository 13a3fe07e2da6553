package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
)

// Anchorage accumulates the links to a canonical URL, for its Document. Call Add for the rows of
// anchors in order.
type Anchorage struct {
	// Sources is the number of pages with these links.
	Sources int
	last    string
	sum     hash.Hash
}

// Add adds one row of anchors and its text.
func (a *Anchorage) Add(row string, texts []byte) {
	a.begin()
	if source := Parts(row)[1]; source != a.last {
		a.Sources, a.last = a.Sources+1, source
	}
	a.sum.Write([]byte(row + "\n"))
	a.sum.Write(texts)
	a.sum.Write([]byte{'\n'})
}

// Digest returns the digest of all added entries.
func (a *Anchorage) Digest() string {
	a.begin()
	return hex.EncodeToString(a.sum.Sum(nil)[:12])
}

func (a *Anchorage) begin() {
	if a.sum == nil {
		a.sum = sha256.New()
	}
}
