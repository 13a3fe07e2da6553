package placement

// This file measures how evenly the cluster is loaded, and how a change would affect that.
// A tally belongs to one planner; everything here is arithmetic.

// weight is the load that a replica, or leading a tablet, adds to its node: one replica or leader,
// its bytes, and its operations per second.
type weight struct{ count, size, load float64 }

func (a weight) plus(b weight, sign float64) weight {
	return weight{a.count + sign*b.count, a.size + sign*b.size, a.load + sign*b.load}
}

// Below these means per node, differences in bytes and operations hardly count.
const (
	minSize = 16 << 20 // bytes
	minLoad = 1000     // operations per second
)

// How far a node may be from the mean, as a fraction of it, before anything is moved: in
// number of replicas or leaders (one more or less is always allowed), in bytes, and in load.
// Sizes and loads change all the time and every move has its cost.
const (
	slackCount = 0.1
	slackSize  = 0.1
	slackLoad  = 0.2
)

// sizeFactor is the weight of an excess of bytes relative to an excess of replicas, because a node
// can run out of disk space.
const sizeFactor = 8

// minGain is the smallest improvement, as a fraction of the tablet's weight, that
// justifies a move. After a move that gains less, a small change of the figures would
// justify moving back.
const minGain = 0.3

// tally maps each live node that may hold replicas to its load. total is the weight of all tablets
// with their proper numbers of replicas: if it changed with each half-done move, the measure of
// improvement would change too.
type tally struct {
	on    map[uint64]weight
	total weight
}

func newTally(nodes []Node) *tally {
	t := &tally{on: map[uint64]weight{}}
	for i := range nodes {
		if nodes[i].mayHold() && nodes[i].Alive { // nodes that refuse writes count too
			t.on[nodes[i].ID] = weight{}
		}
	}
	return t
}

// add adds the weight to the nodes, or subtracts it if sign is -1. It ignores nodes that
// are not in the tally.
func (t *tally) add(nodes []uint64, w weight, sign float64) {
	for _, n := range nodes {
		if have, ok := t.on[n]; ok {
			t.on[n] = have.plus(w, sign)
		}
	}
}

// expect adds n times the weight to the total.
func (t *tally) expect(n int, w weight) { t.total = t.total.plus(w, float64(n)) }

// change is the effect of a step on the cluster. Less is better: zones decides, then excess, then
// uneven.
type change struct {
	zones int // pairs of a tablet's voters in one zone
	// excess is the sum, over nodes and figures, of the square of how far the figure is
	// from its mean beyond the slack, relative to the mean.
	excess float64
	// uneven is like excess without slack. It ranks nodes for a replica that has to be
	// placed somewhere.
	uneven  float64
	minGain float64 // the decrease of excess below which a move is not worth its cost
}

// rounding exceeds the difference between sums of the same figures in different orders.
const rounding = 1e-9

// justifiesMove reports whether the change is worth beginning a move.
func (c change) justifiesMove() bool {
	return c.zones < 0 || c.zones == 0 && c.excess < -rounding-c.minGain
}

// improves reports whether the change makes the cluster better at all, which is enough to
// continue a move that has begun.
func (c change) improves() bool { return c.zones < 0 || c.zones == 0 && c.excess < -rounding }

// less reports whether c is better than d.
func (c change) less(d change) bool {
	if c.zones != d.zones {
		return c.zones < d.zones
	}
	if more := c.excess - d.excess; max(more, -more) > rounding {
		return more < 0
	}
	return c.uneven < d.uneven
}

// delta returns the effect of adding the weight to a node, or of removing it if sign is -1.
// A node that is not in the tally has none.
func (t *tally) delta(node uint64, w weight, sign float64) (c change) {
	have, ok := t.on[node]
	if !ok {
		return c
	}
	after, n := have.plus(w, sign), float64(len(t.on))
	count, size, load := t.total.count/n, t.total.size/n, t.total.load/n // the means
	c.add(1, 0, have.count, after.count, count, 1, max(1, slackCount*count))
	c.add(sizeFactor, minGain, have.size, after.size, size, minSize, slackSize*max(size, minSize))
	c.add(1, minGain, have.load, after.load, load, minLoad, slackLoad*max(load, minLoad))
	return c
}

// uneven reports whether a figure of the node is below its mean by more than the slack, and
// whether one is above: only then can adding a replica, or removing one, decrease the excess.
func (t *tally) uneven(node uint64) (under, over bool) {
	have, ok := t.on[node]
	if !ok {
		return false, false
	}
	n := float64(len(t.on))
	count, size, load := t.total.count/n, t.total.size/n, t.total.load/n // the means
	for _, f := range []struct{ have, mean, slack float64 }{
		{have.count, count, max(1, slackCount*count)},
		{have.size, size, slackSize * max(size, minSize)},
		{have.load, load, slackLoad * max(load, minLoad)},
	} {
		under, over = under || f.have < f.mean-f.slack, over || f.have > f.mean+f.slack
	}
	return under, over
}

// add adds the effect of one figure of a node changing from before to after. The figure is
// taken relative to its mean, or to floor if that is larger.
func (c *change) add(factor, gainFraction, before, after, mean, floor, slack float64) {
	square := func(x, slack float64) float64 {
		off := max(0, max(x-mean, mean-x)-slack) / max(mean, floor)
		return factor * off * off
	}
	c.excess += square(after, slack) - square(before, slack)
	c.uneven += square(after, 0) - square(before, 0)
	own := (after - before) / max(mean, floor)
	c.minGain += gainFraction * factor * own * own / 2 // each end of a move adds half
}

// moveDelta returns the effect of moving the weight from one node to another. The two
// nodes differ, so the effects at both ends add up.
func (t *tally) moveDelta(from, to uint64, w weight) change {
	a, b := t.delta(from, w, -1), t.delta(to, w, 1)
	return change{
		excess: a.excess + b.excess, uneven: a.uneven + b.uneven, minGain: a.minGain + b.minGain,
	}
}
