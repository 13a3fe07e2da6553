package export

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"

	percolator "github.com/percolator-go/percolator"
)

type anchorDigest struct{ h hash.Hash }

func newAnchorDigest() anchorDigest { return anchorDigest{sha256.New()} }

func (a anchorDigest) add(c percolator.Cell) {
	a.h.Write([]byte(c.Row))
	a.h.Write(c.Value)
}

func (a anchorDigest) sum() string { return hex.EncodeToString(a.h.Sum(nil)[:12]) }
