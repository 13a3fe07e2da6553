package meta

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Creation of tables, in three steps that each survive a crash: an id is reserved for the name, the
// table's first tablet is created, and the record with the name is written. A split key is pending
// in that record until a tablet starts at it (docs/adr/0054). Any request for the same keys, on any
// node, continues with them. Pending keys count as tablets for all limits, and dropping the table
// discards them.
//
// There is no state here; calls run on the goroutines of clients' requests, one at a time on each
// node (ddl). The splits of a request run on goroutines that it joins.

const (
	// createStep is the time after which a step of a creation starts no more splits. The last
	// ones may take as long again; the sum is below a client's RPC timeout.
	createStep = 3 * time.Second
	// splitsAtOnce is the number of concurrent splits of one step, each of another tablet.
	splitsAtOnce = 8
)

// CreateTable creates the table, or adds missing split keys to an existing one, and returns its
// record once a tablet starts at each key. It may be repeated after any failure.
func (s *Schema) CreateTable(ctx context.Context, name string,
	splitKeys []string) (*pb.Table, error) {
	return s.CreateExpiring(ctx, name, splitKeys, nil)
}

// CreateExpiring creates a table with the split keys and the expiry, and returns it. An existing table
// keeps its expiry.
func (s *Schema) CreateExpiring(ctx context.Context, name string, splitKeys []string,
	expiry *pb.TableExpiry) (*pb.Table, error) {
	req := &pb.CreateTableRequest{Name: name, Expiry: expiry}
	for _, key := range splitKeys {
		req.SplitKeys = append(req.SplitKeys, wire.Bytes(key))
	}
	for {
		t, err := s.CreateTableStep(ctx, req)
		if err != nil || wire.PendingSplits(t, req) == 0 {
			return t, err
		}
	}
}

// CreateTableStep is like CreateTable but starts splits for createStep only, and returns the
// remaining split keys in the record's PendingSplitKeys. It fails if no tablet starts at any of the
// remaining keys afterwards, or if it cannot record those that do, so a caller that repeats it
// while it succeeds terminates.
func (s *Schema) CreateTableStep(ctx context.Context,
	req *pb.CreateTableRequest) (*pb.Table, error) {
	if name := req.GetName(); name == "" || len(name) > maxTableName {
		return nil, refuse(pb.Error_CODE_INVALID, "a table's name has 1 to %d bytes, not %d",
			maxTableName, len(name))
	}
	if err := checkExpiry(req.GetExpiry()); err != nil {
		return nil, err
	}
	if n := len(req.GetSplitKeys()); n > maxSplitKeys {
		return nil, refuse(pb.Error_CODE_TOO_LARGE,
			"%d split keys; at most %d at once: add the others by another request", n, maxSplitKeys)
	}
	if err := s.ddl.lock(ctx); err != nil {
		return nil, err
	}
	defer s.ddl.unlock()
	t, err := s.enterTable(ctx, req)
	if err != nil {
		return nil, err
	}
	left := keysOf(req.SplitKeys)
	left = slices.DeleteFunc(left, func(key string) bool { return !has(t.PendingSplitKeys, key) })
	if len(left) == 0 {
		return t, nil
	}
	made, err := s.splitAll(ctx, mvcc.TableID(t.Id), left)
	if len(made) == 0 {
		return nil, fmt.Errorf("meta: split table %q: %w", t.Name, err)
	}
	return s.noteSplits(ctx, t, made)
}

// enterTable returns the table's record, created if necessary, with the request's split keys in
// it: those at which no tablet is known to start are pending. A rejected request changes nothing.
func (s *Schema) enterTable(ctx context.Context, req *pb.CreateTableRequest) (t *pb.Table, err error) {
	err = retry(ctx, func() (done bool, err error) {
		if t, err = s.Table(ctx, req.Name); err != nil {
			return false, err
		}
		if t == nil {
			t, err = s.createTable(ctx, req)
			return t != nil, err
		}
		more := slices.DeleteFunc(keysOf(req.SplitKeys), func(key string) bool {
			return has(t.SplitKeys, key) || has(t.PendingSplitKeys, key)
		})
		if len(more) == 0 {
			return true, nil
		}
		old, err := encode(t)
		if err != nil {
			return false, err
		}
		if err := s.room(ctx, req.Owner, t.Id, more...); err != nil {
			return false, err
		}
		for _, key := range more {
			t.PendingSplitKeys = append(t.PendingSplitKeys, wire.Bytes(key))
		}
		value, err := encode(t)
		if err != nil {
			return false, err
		}
		return s.swap(ctx, change{row: prefixTable + t.Name, old: old, value: value})
	})
	return t, err
}

// createTable creates the table with all split keys pending and returns its record, or nil if
// another request created it first.
func (s *Schema) createTable(ctx context.Context, req *pb.CreateTableRequest) (*pb.Table, error) {
	reserved, err := s.get(ctx, prefixCreating+req.Name)
	if err != nil {
		return nil, err
	}
	// The limits are checked before an id is reserved, against the id that would be next. An
	// earlier attempt may have created the first tablet, which is not counted twice.
	var id uint64
	if len(reserved) == 4 {
		id = uint64(binary.BigEndian.Uint32(reserved))
	} else if id, _, err = s.counted(ctx, rowNextTable, uint64(mvcc.FirstUserTable), 1); err != nil {
		return nil, err
	}
	if err := s.allowExpiry(ctx, req.Expiry); err != nil {
		return nil, err
	}
	keys := keysOf(req.SplitKeys)
	if err := s.room(ctx, req.Owner, uint32(id), append([]string{""}, keys...)...); err != nil {
		return nil, err
	}
	if reserved, err = s.reserveTable(ctx, req.Name); err != nil {
		return nil, err
	}
	t := &pb.Table{
		Id: binary.BigEndian.Uint32(reserved), Name: req.Name, Owner: req.Owner, Expiry: req.Expiry,
	}
	for _, key := range keys {
		t.PendingSplitKeys = append(t.PendingSplitKeys, wire.Bytes(key))
	}
	if err := s.split(ctx, mvcc.TableID(t.Id), "", 0); err != nil {
		return nil, fmt.Errorf("meta: create the first tablet of table %q: %w", t.Name, err)
	}
	value, err := encode(t)
	if err != nil {
		return nil, err
	}
	// A delayed copy of this write has no effect: the first copy removed the reservation, which is
	// a condition, and a later reservation of the name has another id.
	done, err := s.swap(ctx,
		change{row: prefixTable + t.Name, value: value},
		change{row: prefixCreating + t.Name, old: reserved},
		change{row: droppedRow(t.Id), keep: true})
	if !done || err != nil {
		return nil, err
	}
	return t, nil
}

// reserveTable returns the id, as four bytes, of a table being created. A failed attempt is
// resumed with the same id; a new id would orphan its first tablet.
func (s *Schema) reserveTable(ctx context.Context, name string) (reserved []byte, err error) {
	err = retry(ctx, func() (bool, error) {
		if reserved, err = s.get(ctx, prefixCreating+name); err != nil || len(reserved) == 4 {
			return true, err
		}
		id, step, err := s.counted(ctx, rowNextTable, uint64(mvcc.FirstUserTable), 1)
		if err != nil {
			return false, err
		}
		old := reserved
		reserved = binary.BigEndian.AppendUint32(nil, uint32(id))
		// In one write with the counter, which never has the same value again: otherwise a
		// delayed copy that arrives after the table was created and dropped would reserve the
		// dropped id.
		return s.swap(ctx, change{row: prefixCreating + name, old: old, value: reserved}, step)
	})
	return reserved, err
}

// splitAll splits tablets at the keys until a step's time is over, and returns the keys at which
// one starts. Without an error these are all keys, or the time is over.
func (s *Schema) splitAll(ctx context.Context, table mvcc.TableID,
	keys []string) (made []string, err error) {
	ends := time.Now().Add(createStep)
	ctx, cancel := context.WithDeadline(ctx, ends.Add(createStep))
	defer cancel()
	slices.Sort(keys)
	for _, halving := range halvings(keys) {
		for some := range slices.Chunk(halving, splitsAtOnce) {
			if err != nil || !time.Now().Before(ends) {
				return made, err
			}
			id, err := s.nextIDs(ctx, rowNextTablet, cluster.FirstFreeTablet, len(some))
			if err != nil {
				return made, err
			}
			errs := make([]error, len(some))
			var splits sync.WaitGroup
			for i, key := range some {
				splits.Go(func() { errs[i] = s.split(ctx, table, key, id+uint64(i)) })
			}
			splits.Wait()
			for i, key := range some {
				if errs[i] == nil {
					made = append(made, key)
				}
			}
			if err := cmp.Or(errs...); err != nil {
				return made, err
			}
		}
	}
	return made, nil
}

// halvings returns the sorted keys in groups: the middle key, the two middles of the halves, and
// so on. No two keys of a group are in one tablet once the earlier groups' splits are done.
func halvings(sorted []string) (groups [][]string) {
	for parts := [][]string{sorted}; len(parts) > 0; {
		var group []string
		var halves [][]string
		for _, part := range parts {
			if len(part) == 0 {
				continue
			}
			middle := len(part) / 2
			group = append(group, part[middle])
			halves = append(halves, part[:middle], part[middle+1:])
		}
		if len(group) > 0 {
			groups = append(groups, group)
		}
		parts = halves
	}
	return groups
}

// noteSplits records the keys at which tablets start and returns the table's record.
func (s *Schema) noteSplits(ctx context.Context, of *pb.Table, made []string) (*pb.Table, error) {
	t, err := update(ctx, s.records, prefixTable+of.Name,
		func(have *pb.Table) (*pb.Table, []change, error) {
			if have.GetId() != of.Id {
				return nil, nil, refuse(pb.Error_CODE_NO_TABLE,
					"table %q was dropped while it was split", of.Name)
			}
			for _, key := range made {
				if !has(have.SplitKeys, key) {
					have.SplitKeys = append(have.SplitKeys, wire.Bytes(key))
				}
			}
			slices.SortFunc(have.SplitKeys, bytes.Compare) // splits complete in any order
			have.PendingSplitKeys = slices.DeleteFunc(have.PendingSplitKeys, func(key []byte) bool {
				return slices.Contains(made, wire.String(key))
			})
			return have, nil, nil
		})
	return t, err
}

// keysOf returns the keys as rows, without duplicates and without the empty key, at which every
// table starts.
func keysOf(keys [][]byte) (rows []string) {
	seen := map[string]bool{"": true}
	for _, key := range keys {
		if row := wire.String(key); !seen[row] {
			seen[row] = true
			rows = append(rows, row)
		}
	}
	return rows
}

// has reports whether the row is one of the keys.
func has(keys [][]byte, row string) bool {
	return slices.ContainsFunc(keys, func(key []byte) bool { return string(key) == row })
}
