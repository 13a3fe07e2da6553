package meta

import (
	"context"
	"errors"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// The expiry of a table's cells by age is a field of its record (docs/adr/0068). actors/expirer
// reads it, on the node that leads meta.

// Limits of a table's expiry.
const (
	minExpiry        = time.Second
	maxExpiryColumns = 100
	maxExpiryColumn  = 1 << 10 // bytes of a column's name
)

// SetExpiry replaces the expiry of the table with the name and the id; nil or an empty one removes
// it.
func (s *Schema) SetExpiry(ctx context.Context, name string, id uint32, expiry *pb.TableExpiry) error {
	if expiry.GetAfterMs() == 0 && len(expiry.GetColumns()) == 0 {
		expiry = nil
	}
	if err := errors.Join(checkExpiry(expiry), s.allowExpiry(ctx, expiry)); err != nil {
		return err
	}
	_, err := update(ctx, s.records, prefixTable+name,
		func(t *pb.Table) (*pb.Table, []change, error) {
			if t == nil || t.Id != id {
				return nil, nil, refuse(pb.Error_CODE_NO_TABLE, "there is no table %q with the id %d: list the tables again",
					name, id)
			}
			t.Expiry = expiry
			return t, nil, nil
		})
	return err
}

// allowExpiry rejects an expiry while some nodes may run a build without it.
func (s *Schema) allowExpiry(ctx context.Context, e *pb.TableExpiry) error {
	if e == nil {
		return nil
	}
	policy, err := s.policy.Read(ctx)
	if err != nil {
		return err
	}
	if err := wire.ExpiryActive(policy); err != nil {
		return refuse(pb.Error_CODE_INVALID, "%v", err)
	}
	return nil
}

// checkExpiry rejects an expiry that is out of bounds.
func checkExpiry(e *pb.TableExpiry) error {
	if n := len(e.GetColumns()); n > maxExpiryColumns {
		return refuse(pb.Error_CODE_INVALID, "expiry of %d columns; at most %d may have their own", n, maxExpiryColumns)
	}
	ages := []uint64{e.GetAfterMs()}
	for i, c := range e.GetColumns() {
		if len(c.Column) > maxExpiryColumn {
			return refuse(pb.Error_CODE_TOO_LARGE, "expiry of a column of %d bytes; names have at most %d",
				len(c.Column), maxExpiryColumn)
		}
		if i > 0 && string(e.Columns[i-1].Column) >= string(c.Column) {
			return refuse(pb.Error_CODE_INVALID, "expiry: the columns are not in order, or column %q occurs twice",
				wire.String(c.Column))
		}
		ages = append(ages, c.AfterMs)
	}
	for _, ms := range ages {
		if ms != 0 && (ms < uint64(minExpiry.Milliseconds()) || ms > maxExpiryMs) {
			return refuse(pb.Error_CODE_INVALID, "expiry after %d ms: an age is at least %s and at most 1000 years, or 0 for never",
				ms, minExpiry)
		}
	}
	return nil
}

// maxExpiryMs is 1000 years, so that sums of an age and a time do not overflow.
const maxExpiryMs = 1000 * 366 * 24 * 3600 * 1000
