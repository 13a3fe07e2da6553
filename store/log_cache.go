package store

import "go.etcd.io/raft/v3/raftpb"

// What a Log keeps in memory: enough that a leader's own apply and its followers' appends are served from there.
const (
	cacheEntries = 1024
	cacheBytes   = 4 << 20
)

// entryCache holds the end of a log: consecutive entries up to the last readable one, so many and so large at most.
type entryCache struct {
	entries []*raftpb.Entry
	bytes   int
}

// append adds entries, replacing what they overwrite.
func (c *entryCache) append(entries []*raftpb.Entry) {
	if n := len(c.entries); n > 0 {
		keep := int64(entries[0].GetIndex()) - int64(c.entries[0].GetIndex())
		keep = min(max(keep, 0), int64(n))
		for i := keep; i < int64(n); i++ {
			c.bytes -= len(c.entries[i].Data)
			c.entries[i] = nil
		}
		c.entries = c.entries[:keep]
	}
	for _, e := range entries {
		c.entries = append(c.entries, e)
		c.bytes += len(e.Data)
	}
	drop := 0
	for b := c.bytes; len(c.entries)-drop > cacheEntries || (b > cacheBytes && drop < len(c.entries)); drop++ {
		b -= len(c.entries[drop].Data)
	}
	c.drop(drop)
}

// dropThrough forgets the entries up to index.
func (c *entryCache) dropThrough(index uint64) {
	if first := c.firstOr(index + 1); first <= index {
		c.drop(int(min(index-first+1, uint64(len(c.entries)))))
	}
}

func (c *entryCache) drop(n int) {
	for i := range n {
		c.bytes -= len(c.entries[i].Data)
		c.entries[i] = nil
	}
	c.entries = c.entries[n:]
}

// firstOr is the first cached index, or none if the cache is empty.
func (c *entryCache) firstOr(none uint64) uint64 {
	if len(c.entries) == 0 {
		return none
	}
	return c.entries[0].GetIndex()
}

// at returns the entry of an index, or nil.
func (c *entryCache) at(index uint64) *raftpb.Entry {
	first := c.firstOr(index + 1)
	if index < first || index-first >= uint64(len(c.entries)) {
		return nil
	}
	return c.entries[index-first]
}
