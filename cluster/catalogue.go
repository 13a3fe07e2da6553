package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"

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

// push gives the catalogue to every tablet, those included that a split makes meanwhile: it is over when the map has no
// tablet that was not asked. A split inherits the version, so a tablet that appears after its parent was asked has it.
func (m *Meta) push(ctx context.Context, c *pb.Catalogue) error {
	asked := map[uint64]bool{MetaTablet: true}
	for {
		news := false
		for _, d := range m.router.All() {
			if asked[d.TabletId] {
				continue
			}
			news = true
			asked[d.TabletId] = true
			req := &pb.TabletRequest{Op: &pb.TabletRequest_SetCatalogue{SetCatalogue: &pb.SetCatalogueRequest{Catalogue: c}}}
			if _, err := m.send(ctx, d.TabletId, req); err != nil {
				return fmt.Errorf("cluster: give tablet %d the catalogue: %w", d.TabletId, err)
			}
		}
		if !news {
			return nil
		}
	}
}

// Sync gives every tablet the newest catalogue: it repairs what a crash between the record and the push left.
func (m *Meta) Sync(ctx context.Context) error {
	if err := m.ddl.lock(ctx); err != nil {
		return err
	}
	defer m.ddl.unlock()
	return m.changeCatalogue(ctx, func(*pb.Catalogue) ([]change, error) { return nil, nil })
}
