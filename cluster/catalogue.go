package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

func asServer(err error, into **txn.ServerError) bool { return errors.As(err, into) }

// Catalogue reads the newest version of the observer catalogue.
func (m *Meta) Catalogue(ctx context.Context) (*pb.Catalogue, error) {
	value, err := m.get(ctx, rowCatalogue)
	if err != nil {
		return nil, err
	}
	c := &pb.Catalogue{}
	return c, decode(rowCatalogue, value, c)
}

// changeCatalogue writes a new version, if fn changes anything, in one step with the changes that fn returns, and pushes
// the newest to every tablet. fn is called again if another was faster. The caller holds ddl.
func (m *Meta) changeCatalogue(ctx context.Context, fn func(*pb.Catalogue) ([]change, error)) error {
	var current *pb.Catalogue
	err := retry(ctx, func() (bool, error) {
		old, err := m.get(ctx, rowCatalogue)
		if err != nil {
			return false, err
		}
		current = &pb.Catalogue{}
		if err := decode(rowCatalogue, old, current); err != nil {
			return false, err
		}
		before, err := encode(current)
		if err != nil {
			return false, err
		}
		with, err := fn(current)
		if err != nil {
			return false, err
		}
		if after, err := encode(current); err != nil || bytes.Equal(before, after) {
			return true, err
		}
		current.Version++
		value, err := encode(current)
		if err != nil {
			return false, err
		}
		return m.swap(ctx, append(with, change{row: rowCatalogue, old: old, value: value})...)
	})
	if err != nil {
		return err
	}
	if err := m.push(ctx, current); err != nil {
		return err
	}
	m.told = max(m.told, current.Version)
	return nil
}

// push gives the catalogue to every tablet of user tables: it walks along all rows, and each tablet is asked for the range
// that it is believed to have. One that has another range by now refuses, and the walk goes on with what is there. A
// split inherits the version, so what is made of a tablet after it was asked has it.
func (m *Meta) push(ctx context.Context, c *pb.Catalogue) error {
	at := wire.Position{Table: mvcc.FirstUserTable}
	for {
		end, bounded, err := m.pushOne(ctx, at, c)
		if err != nil || !bounded {
			return err
		}
		at = end
	}
}

// pushOne gives the catalogue to the tablet that holds the position and returns where that ends.
func (m *Meta) pushOne(ctx context.Context, at wire.Position, c *pb.Catalogue) (end wire.Position, bounded bool, err error) {
	err = retry(ctx, func() (bool, error) {
		held, err := m.router.Find(ctx, at.Table, at.Row, 1)
		if err != nil || len(held) == 0 {
			return false, err
		}
		d := held[0]
		req := &pb.TabletRequest{Epoch: d.Epoch, Op: &pb.TabletRequest_SetCatalogue{SetCatalogue: &pb.SetCatalogueRequest{Catalogue: c}}}
		_, err = m.send(ctx, d.TabletId, req)
		var refused *txn.ServerError
		if asServer(err, &refused) && refused.Code == pb.Error_CODE_WRONG_TABLET {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("cluster: give tablet %d the catalogue: %w", d.TabletId, err)
		}
		end, bounded = wire.EndOf(d)
		return true, nil
	})
	return end, bounded, err
}

// Sync gives every tablet the newest catalogue: it repairs what a crash between the record and the push left.
func (m *Meta) Sync(ctx context.Context) error {
	if err := m.ddl.lock(ctx); err != nil {
		return err
	}
	defer m.ddl.unlock()
	return m.changeCatalogue(ctx, func(*pb.Catalogue) ([]change, error) { return nil, nil })
}
