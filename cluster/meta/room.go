package meta

import (
	"context"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Limits of tables and tablets by the policy, for the cluster and for each client. Nodes that
// create tablets concurrently do not see each other's: each may exceed a limit by the tablets of
// one request.

// room rejects new tablets at keys in the table with the id that would exceed the policy's limits.
// A tablet that exists, or is pending in a table's record, is not counted again. A tablet of
// dropped tables only does not count, because it will be merged; while there are more of these
// than the policy allows tablets, no new ones are created. owner is the identity of the
// requesting client; empty means no client limit.
func (s *Schema) room(ctx context.Context, owner string, id uint32, keys ...string) error {
	tablets, err := s.tablets.Tablets(ctx)
	if err != nil {
		return err
	}
	tables, err := s.Tables(ctx)
	if err != nil {
		return err
	}
	c, err := s.observers.Catalogue(ctx)
	if err != nil {
		return err
	}
	unused, used := 0, map[wire.Position]bool{}
	for _, d := range tablets {
		start := wire.StartOf(d)
		if start.Table < mvcc.FirstUserTable {
			continue
		}
		used[start] = true
		if Unused(c, d) {
			unused++
		}
	}
	for _, t := range tables {
		for _, key := range t.PendingSplitKeys {
			used[wire.Position{Table: mvcc.TableID(t.Id), Row: wire.String(key)}] = true
		}
	}
	there, more := len(used)-unused, 0
	for _, key := range keys {
		if !used[wire.Position{Table: mvcc.TableID(id), Row: key}] {
			more++
		}
	}
	// Nothing is created, so the request is allowed even if a limit was lowered since.
	if more == 0 {
		return nil
	}
	p, err := s.policy.Read(ctx)
	if err != nil {
		return err
	}
	most := p.GetSplitMaxTablets()
	if uint64(unused) > most {
		return refuse(pb.Error_CODE_OVERLOADED,
			"%d tablets of dropped tables wait to be merged, more than %d: try again later",
			unused, most)
	}
	if uint64(there+more) > most {
		return refuse(pb.Error_CODE_TOO_LARGE,
			"there are %d tablets of at most %d; the request needs %d more. "+
				"Raise the limit with `percolator cluster set "+
				"split-max-tablets=N`", there, most, more)
	}
	if owner == "" {
		return nil
	}
	return clientRoom(p, owner, id, more, tables, used)
}

// clientRoom rejects more tablets of the table with the id for a client with limits.
func clientRoom(p *pb.Policy, owner string, id uint32, more int, tables []*pb.Table,
	used map[wire.Position]bool) error {
	maxTables, maxTablets := p.GetClientMaxTables(), p.GetClientMaxTablets()
	if maxTables == 0 && maxTablets == 0 {
		return nil
	}
	owned, exists := map[mvcc.TableID]bool{}, false
	for _, t := range tables {
		exists = exists || t.Id == id
		if t.Owner == owner {
			owned[mvcc.TableID(t.Id)] = true
		}
	}
	// New tablets of a table that the client has not created would count for no client, or for
	// another one.
	if exists && !owned[mvcc.TableID(id)] {
		return refuse(pb.Error_CODE_PERMISSION, "clients have limits, and %q has not created the "+
			"table: only its creator or an operator may add split keys to it", owner)
	}
	if !exists && maxTables > 0 && uint64(len(owned)) >= maxTables {
		return refuse(pb.Error_CODE_TOO_LARGE, "%q owns %d tables of at most %d: "+
			"drop some, or have an operator raise client-max-tables with `percolator cluster set`",
			owner, len(owned), maxTables)
	}
	tablets := 0
	for start := range used {
		if owned[start.Table] {
			tablets++
		}
	}
	if maxTablets > 0 && uint64(tablets+more) > maxTablets {
		return refuse(pb.Error_CODE_TOO_LARGE, "the tables of %q have %d tablets of at most "+
			"%d; the request needs %d more. An operator can raise "+
			"client-max-tablets with `percolator cluster set`", owner, tablets, maxTablets, more)
	}
	return nil
}
