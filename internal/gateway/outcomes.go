package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	gw "github.com/percolator-go/percolator/api/gateway/v1"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// Idempotency keys. A transaction with a key reads the outcome of the key and writes it, so that of two
// transactions with one key at most one commits, and the other one finds its outcome, even if the
// answer was lost or its node has died. An outcome is the answer without its commit timestamp,
// which is that of the outcome's cell.

// maxKey is the maximum length of an idempotency key, maxOutcome that of a stored answer, in bytes.
const (
	maxKey     = 128
	maxOutcome = 1 << 20
)

// outcomeColumn is the column of outcomes.
var outcomeColumn = percolator.Column{Table: rpc.OutcomesTable, Name: "outcome"}

// outcomes locates the outcomes of idempotency keys, and creates their table at the first key.
type outcomes struct {
	create func(context.Context) error
	exists atomic.Bool
}

// outcome is the place of one key's outcome. The zero value is that of a request without a key.
type outcome struct {
	row         string
	fingerprint [sha256.Size]byte // of the request
}

// of returns the place of the caller's key. request is what a repetition must equal.
func (o *outcomes) of(ctx context.Context, who rpc.Identity, key string, request proto.Message) (outcome, error) {
	if key == "" {
		return outcome{}, nil
	}
	if len(key) > maxKey {
		return outcome{}, txn.Invalid("the idempotency key has %d bytes; at most %d are possible", len(key), maxKey)
	}
	if !o.exists.Load() {
		if err := o.create(ctx); err != nil {
			return outcome{}, txn.Errorf("create the table of idempotency keys: %w", err)
		}
		o.exists.Store(true)
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return outcome{}, err
	}
	// A hash spreads the keys over the tablets of the table. Clients whose certificates or tokens
	// have different names do not share keys; in plain text all clients do.
	h := sha256.New()
	for _, part := range []string{who.Account(), key} {
		length := sha256.Sum256([]byte(part))
		h.Write(length[:])
	}
	return outcome{hex.EncodeToString(h.Sum(nil)), sha256.Sum256(encoded)}, nil
}

// failed notes that the table of outcomes does not exist any more, if that may be why a request failed.
func (o *outcomes) failed(err error) {
	if errors.Is(err, percolator.ErrNoTable) {
		o.exists.Store(false)
	}
}

// given reports whether the request has a key.
func (o outcome) given() bool { return o.row != "" }

// cell returns the address of the outcome.
func (o outcome) cell() percolator.CellKey {
	return percolator.CellKey{Row: o.row, Column: outcomeColumn}
}

// stored returns the answer in the outcome's cell.
func (o outcome) stored(c percolator.Cell) (*gw.TransactResponse, error) {
	fingerprint, answer := c.Value[:min(len(c.Value), sha256.Size)], &gw.TransactResponse{}
	if !bytes.Equal(fingerprint, o.fingerprint[:]) {
		return nil, errKeyReused
	}
	if err := proto.Unmarshal(c.Value[sha256.Size:], answer); err != nil {
		return nil, err
	}
	answer.CommitTimestamp, answer.Repeated = uint64(c.CommitTS), true
	return answer, nil
}

// store writes the answer as the outcome in the transaction that it is the answer of.
func (o outcome) store(tx *percolator.Tx, answer *gw.TransactResponse) error {
	encoded, err := proto.Marshal(answer)
	if err != nil {
		return err
	}
	if len(encoded) > maxOutcome {
		return txn.Errorf("%w: an answer of %d bytes, of a request with an idempotency key; at most %d are "+
			"possible: read large values apart", percolator.ErrTooLarge, len(encoded), maxOutcome)
	}
	tx.Set(o.row, outcomeColumn, append(o.fingerprint[:], encoded...))
	return nil
}
