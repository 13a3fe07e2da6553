package mvcc

// collectable is what collection may delete at the tablet's safepoint (invariant 11), for the tests of the rules: the
// order and the bounds of the real one are the tablet's.
func collectable(m *MemView) []Mutation {
	var list []Mutation
	drop := func(g Group, c Cell, ts Timestamp) {
		list = append(list, Mutation{Group: g, Cell: c, TS: ts, Delete: true})
	}
	for c, newest := range m.newest.all() {
		visible := newest.CommitTS <= m.SafepointTS
		left := 0
		for _, w := range m.older[c] {
			if w.CommitTS > m.SafepointTS || !visible {
				// Not below the safepoint, or the newest below it, which a read at the safepoint sees.
				visible = visible || w.CommitTS <= m.SafepointTS
				left++
				continue
			}
			drop(GroupHistory, c, w.CommitTS)
			if w.Long {
				drop(GroupData, c, w.StartTS)
			}
		}
		_, locked := m.Lock(c)
		_, dirty, _ := m.Notification(c)
		if newest.Kind == KindDelete && newest.CommitTS <= m.SafepointTS && left == 0 && !locked && !dirty {
			drop(GroupWrite, c, 0)
		}
	}
	for k := range m.rolled {
		if k.ts < m.SafepointTS {
			drop(GroupRollback, k.cell, k.ts)
		}
	}
	return list
}
