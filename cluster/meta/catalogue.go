package meta

import (
	"bytes"
	"context"
	"errors"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
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

// changeCatalogue writes a new version, if fn changes anything, in one step with the
// changes that fn returns, and tells every tablet the newest. fn is called again if
// another was faster. What is waited for without ddl is the tablets: they may be away for
// long.
func (m *Meta) changeCatalogue(ctx context.Context,
	fn func(*pb.Catalogue) ([]change, error)) error {
	current, err := m.writeCatalogue(ctx, fn)
	if err != nil {
		return err
	}
	return m.tell(ctx, current)
}

// writeCatalogue is changeCatalogue that tells nobody; it returns the newest version.
func (m *Meta) writeCatalogue(ctx context.Context,
	fn func(*pb.Catalogue) ([]change, error)) (current *pb.Catalogue, err error) {
	if err := m.ddl.lock(ctx); err != nil {
		return nil, err
	}
	defer m.ddl.unlock()
	err = retry(ctx, func() (bool, error) {
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
	return current, err
}

// Sync tells every tablet the newest catalogue, unless all are known to have it: it goes
// on where whoever wrote it has given up, or has crashed.
func (m *Meta) Sync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := m.Catalogue(ctx)
	if err != nil {
		return err
	}
	return m.tell(ctx, c)
}
