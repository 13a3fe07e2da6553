package placement

// weight is what a replica, or a leader, brings to its node.
type weight struct{ count, size, load float64 }

func (a weight) plus(b weight, sign float64) weight {
	return weight{a.count + sign*b.count, a.size + sign*b.size, a.load + sign*b.load}
}

// Below these means per node, nobody cares how evenly bytes and operations are spread.
const (
	minSize = 64 << 20 // bytes
	minLoad = 1000     // operations per second
)

// Thresholds of unevenness (see change): of a move that is begun, and of one that is under way, so that a move is not
// given up because figures have changed a little.
const (
	beginGain  = 0.05
	finishGain = 0.01
)

// tally is what the nodes that take replicas hold. Others are not in it. The total is what all tablets bring once each is
// as it ought to be, whatever is half done: what is better must not change on the way.
type tally struct {
	on    map[uint64]weight
	total weight
}

func newTally(nodes []Node) *tally {
	t := &tally{on: map[uint64]weight{}}
	for i := range nodes {
		if nodes[i].takes() {
			t.on[nodes[i].ID] = weight{}
		}
	}
	return t
}

// add puts the weight on the nodes (sign 1) or takes it away (-1).
func (t *tally) add(nodes []uint64, w weight, sign float64) {
	for _, n := range nodes {
		if have, ok := t.on[n]; ok {
			t.on[n] = have.plus(w, sign)
		}
	}
}

// expect adds to the total.
func (t *tally) expect(n int, w weight) { t.total = t.total.plus(w, float64(n)) }

// change is how a step changes the cluster; less is better, the fields in order.
type change struct {
	zones  int     // pairs of a tablet's voters in one zone
	excess float64 // by how many replicas nodes are further from the mean than they may be
	uneven float64 // sum over nodes of squares of number, size and load, each divided by its mean
}

// rounding is what sums of the same figures in another order differ by.
const rounding = 1e-9

// better reports whether the change is an improvement by at least the gain.
func (c change) better(gain float64) bool {
	switch {
	case c.zones != 0:
		return c.zones < 0
	case c.excess < -rounding:
		return true
	case c.excess > rounding:
		return false
	}
	return c.uneven < -gain
}

// less compares two changes.
func (c change) less(d change) bool {
	if c.zones != d.zones {
		return c.zones < d.zones
	}
	if more := c.excess - d.excess; max(more, -more) > rounding {
		return more < 0
	}
	return c.uneven < d.uneven
}

// put is the change that adding the weight to a node makes (sign 1), or taking it away (-1).
func (t *tally) put(node uint64, w weight, sign float64) (c change) {
	have, ok := t.on[node]
	if !ok {
		return c
	}
	n := float64(len(t.on))
	mean := t.total.count / n
	slack := max(1, mean/10)
	after := have.plus(w, sign)
	over := func(count float64) float64 { return max(0, count-mean-slack, mean-slack-count) }
	c.excess = over(after.count) - over(have.count)
	square := func(before, after, mean float64) float64 { return (after*after - before*before) / (mean * mean) }
	c.uneven = square(have.count, after.count, max(mean, 1)) +
		square(have.size, after.size, max(t.total.size/n, minSize)) +
		square(have.load, after.load, max(t.total.load/n, minLoad))
	return c
}

// move is the change that moving the weight makes. Neither node is looked at twice, so the parts add up.
func (t *tally) move(from, to uint64, w weight) change {
	a, b := t.put(from, w, -1), t.put(to, w, 1)
	return change{excess: a.excess + b.excess, uneven: a.uneven + b.uneven}
}
