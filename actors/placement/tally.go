package placement

// weight is what a replica, or a leader, brings to its node.
type weight struct{ count, size, load float64 }

func (a weight) plus(b weight, sign float64) weight {
	return weight{a.count + sign*b.count, a.size + sign*b.size, a.load + sign*b.load}
}

// Below these means per node, nobody cares how evenly bytes and operations are spread.
const (
	minSize = 16 << 20 // bytes
	minLoad = 1000     // operations per second
)

// How far a node may be from the mean before anything is moved for it: a part of the
// mean, and of the number of replicas one at least. Within it there is peace: sizes and
// loads change all the time, and every move has its price.
const (
	slackCount = 0.1
	slackSize  = 0.1
	slackLoad  = 0.2
)

// sizeFactor is how much more an excess of bytes counts than one of replicas: the bytes
// are what a node runs out of.
const sizeFactor = 8

// noise is the least gain of a move that is begun, as a part of what its tablet alone
// would make up for: where a move gains less than that, the way back is about as good,
// and figures that have changed a little would take it.
const noise = 0.3

// tally is what the nodes that take replicas hold, or would if they had room. Others are
// not in it. The total is what all tablets bring once each is as it ought to be, whatever
// is half done: what is better must not change on the way.
type tally struct {
	on    map[uint64]weight
	total weight
}

func newTally(nodes []Node) *tally {
	t := &tally{on: map[uint64]weight{}}
	for i := range nodes {
		if nodes[i].mayHold() && nodes[i].Alive { // of a full one nothing is moved away for balance
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
	excess float64 // sum over nodes of squares of number, size and load beyond the slack, each divided by its mean
	uneven float64 // likewise, without slack: tells nodes apart for a replica that has to go somewhere
	noise  float64 // a gain in excess that is not worth a move
}

// rounding is what sums of the same figures in another order differ by.
const rounding = 1e-9

// begins reports whether the change is worth a move.
func (c change) begins() bool { return c.zones < 0 || c.zones == 0 && c.excess < -rounding-c.noise }

// goesOn reports whether a move that has been begun still makes the cluster better, if by
// less than it then did.
func (c change) goesOn() bool { return c.zones < 0 || c.zones == 0 && c.excess < -rounding }

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
	after, n := have.plus(w, sign), float64(len(t.on))
	c.add(1, 0, have.count, after.count, t.total.count/n, 1, max(1, slackCount*t.total.count/n))
	c.add(sizeFactor, noise, have.size, after.size, t.total.size/n, minSize, slackSize*max(t.total.size/n, minSize))
	c.add(1, noise, have.load, after.load, t.total.load/n, minLoad, slackLoad*max(t.total.load/n, minLoad))
	return c
}

// add is what one figure of a node contributes that goes from before to after; floor is
// the least mean that it is seen against.
func (c *change) add(factor, noise, before, after, mean, floor, slack float64) {
	square := func(x, slack float64) float64 {
		off := max(0, max(x-mean, mean-x)-slack) / max(mean, floor)
		return factor * off * off
	}
	c.excess += square(after, slack) - square(before, slack)
	c.uneven += square(after, 0) - square(before, 0)
	own := (after - before) / max(mean, floor)
	c.noise += noise * factor * own * own / 2 // both ends of a move have their part
}

// move is the change that moving the weight makes. Neither node is looked at twice, so
// the parts add up.
func (t *tally) move(from, to uint64, w weight) change {
	a, b := t.put(from, w, -1), t.put(to, w, 1)
	return change{excess: a.excess + b.excess, uneven: a.uneven + b.uneven, noise: a.noise + b.noise}
}
