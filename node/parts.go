package node

import (
	"cmp"
	"context"

	"github.com/percolator-go/percolator/internal/memory"
	"github.com/percolator-go/percolator/internal/nodeparts"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/store"
)

// Package nodeparts opens nodes with replaced parts for tests through this function.
var _ = nodeparts.Set(func(ctx context.Context, cfg Config, parts nodeparts.Parts) (any, error) {
	return open(ctx, cfg, parts)
})

// openStore returns a test's store, or opens the one of cfg.
func openStore(cfg Config, parts nodeparts.Parts) (*store.Store, error) {
	if parts.Store != nil {
		return parts.Store, nil
	}
	bound := memory.Find(cfg.Memory)
	sizes := store.SizesFor(bound.Bytes)
	cfg.Logger.Info("node: build", "version", Version(), "program", version.Application())
	cfg.Logger.Info("node: memory", "bound", bound.Bytes, "from", bound.From, "heap", memory.Held(),
		"memtable", cmp.Or(cfg.Store.MemTableSize, sizes.MemTable), "table", sizes.Table)
	return store.Open(store.Options{
		Versions: parts.Versions,
		Memory:   bound.Bytes, Dir: cfg.Dir, LogDir: cfg.LogDir, InMemory: cfg.Store.InMemory,
		Logger:       cfg.Logger,
		MemTableSize: cfg.Store.MemTableSize, MinFreeBytes: cfg.Store.MinFreeBytes,
		SyncDelay: parts.SyncDelay,
	})
}

// wrap returns the transport of the node's own client, as wrapped by a test.
func wrap(t txn.Transport, parts nodeparts.Parts) txn.Transport {
	if parts.Transport == nil {
		return t
	}
	return parts.Transport(t)
}

// Version returns the version of the module percolator in this build, even if another module's
// program links it.
func Version() string { return version.String() }
