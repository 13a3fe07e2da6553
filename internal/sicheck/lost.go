package sicheck

import "slices"

// checkLost reports committed appends that no read contains although a read of their key began after
// they were acknowledged. The graph would have a cycle through each, which is harder to understand.
// Appends that only some reads lack are left to the graph.
func (c *checker) checkLost() {
	shown := map[version]bool{}
	newest := map[string]int{} // of each key, the read begun last
	for t := range c.history {
		if !c.counts[t] {
			continue
		}
		for _, op := range c.history[t].Ops {
			if op.Append {
				continue
			}
			for _, value := range op.List {
				shown[version{op.Key, value}] = true
			}
			if at, ok := newest[op.Key]; !ok || c.history[t].Began > c.history[at].Began {
				newest[op.Key] = t
			}
		}
	}
	var lost []version
	for v, w := range c.writers {
		reader, read := newest[v.key]
		if read && !shown[v] && c.history[w].Outcome == Committed &&
			c.history[w].Ended < c.history[reader].Began {
			lost = append(lost, v)
		}
	}
	slices.SortFunc(lost, func(a, b version) int { return c.writers[a] - c.writers[b] })
	for _, v := range lost {
		c.report(Lost, v.key, []int{c.writers[v], newest[v.key]},
			"%q lacks %d, which was acknowledged before a read of it", v.key, v.value)
	}
}
