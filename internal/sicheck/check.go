package sicheck

import (
	"fmt"
	"slices"
)

// maxAnomalies bounds a report.
const maxAnomalies = 100

// Check returns the anomalies of the history; none if it is snapshot isolated. It does not change the
// history.
func Check(history []Txn) []Anomaly {
	c := &checker{history: history, writers: map[version]int{}, orders: map[string][]int64{}}
	if !c.collectWriters() {
		return c.found
	}
	c.countObserved()
	c.checkReads()
	c.findOrders()
	c.checkLost()
	if len(c.found) == 0 { // the graph requires valid reads
		c.checkOrder()
	}
	return c.found
}

type version struct {
	key   string
	value int64
}

type checker struct {
	history []Txn
	writers map[version]int    // index of the transaction that appended it
	counts  []bool             // transactions that count as committed
	orders  map[string][]int64 // of each key, the longest list read
	found   []Anomaly
}

func (c *checker) report(k Kind, key string, txns []int, format string, args ...any) {
	if len(c.found) >= maxAnomalies {
		return
	}
	ids := make([]int, len(txns))
	for i, t := range txns {
		ids[i] = c.history[t].ID
	}
	c.found = append(c.found, Anomaly{
		Kind: k, Key: key, Txns: ids, Text: fmt.Sprintf(format, args...),
	})
}

func (c *checker) collectWriters() bool {
	for i := range c.history {
		for _, op := range c.history[i].Ops {
			if !op.Append {
				continue
			}
			v := version{op.Key, op.Value}
			if other, twice := c.writers[v]; twice {
				c.report(Malformed, op.Key, []int{other, i}, "%d is appended to %q twice", op.Value,
					op.Key)
			}
			c.writers[v] = i
		}
	}
	return len(c.found) == 0
}

// countObserved chooses the transactions that count: committed ones, and unknown ones whose appends
// were read. Once an unknown one counts, so do its reads, which may show appends of others: hence the
// loop.
func (c *checker) countObserved() {
	c.counts = make([]bool, len(c.history))
	var todo []int
	for i := range c.history {
		if c.history[i].Outcome == Committed {
			c.counts[i] = true
			todo = append(todo, i)
		}
	}
	for len(todo) > 0 {
		t := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, op := range c.history[t].Ops {
			for _, value := range op.List {
				w, known := c.writers[version{op.Key, value}]
				if known && !c.counts[w] && c.history[w].Outcome == Unknown {
					c.counts[w] = true
					todo = append(todo, w)
				}
			}
		}
	}
}

// checkReads checks every read separately.
func (c *checker) checkReads() {
	for t := range c.history {
		if !c.counts[t] {
			continue
		}
		state := map[string]*ownView{}
		for at, op := range c.history[t].Ops {
			own := state[op.Key]
			if own == nil {
				own = &ownView{}
				state[op.Key] = own
			}
			if op.Append {
				own.appended = append(own.appended, op.Value)
				continue
			}
			c.checkValues(t, at, op)
			own.check(c, t, op)
		}
	}
}

// ownView is a transaction's view of a key, from its own operations.
type ownView struct {
	read     bool
	base     []int64 // of the snapshot
	appended []int64 // by the transaction so far
}

// check compares a read with the transaction's earlier reads and appends.
func (o *ownView) check(c *checker, t int, op Op) {
	n := len(op.List) - len(o.appended)
	if n < 0 || !slices.Equal(op.List[n:], o.appended) {
		c.report(Internal, op.Key, []int{t}, "%q is read as %v after appending %v", op.Key, op.List,
			o.appended)
		return
	}
	if o.read && !slices.Equal(o.base, op.List[:n]) {
		c.report(Internal, op.Key, []int{t}, "%q is read as %v, and earlier as %v", op.Key,
			op.List[:n], o.base)
	}
	o.read, o.base = true, op.List[:n]
}

// checkValues checks the writers of the values that a read returned.
func (c *checker) checkValues(t, at int, op Op) {
	seen := make(map[int64]bool, len(op.List))
	for i, value := range op.List {
		if seen[value] {
			c.report(Duplicate, op.Key, []int{t}, "%q is read as %v", op.Key, op.List)
			return
		}
		seen[value] = true
		w, known := c.writers[version{op.Key, value}]
		switch {
		case !known:
			c.report(Garbage, op.Key, []int{t}, "%q contains %d, which no transaction appended", op.Key, value)
		case w == t && !slices.ContainsFunc(c.history[t].Ops[:at], func(o Op) bool {
			return o.Append && o.Key == op.Key && o.Value == value
		}):
			c.report(Future, op.Key, []int{t}, "%q contains %d, which the reader appends later", op.Key,
				value)
		case c.history[w].Outcome == Aborted:
			c.report(AbortedRead, op.Key, []int{t, w},
				"%q contains %d of a transaction that was not committed", op.Key, value)
		case w != t && i == len(op.List)-1 && c.lastAppend(w, op.Key) != value:
			c.report(Intermediate, op.Key, []int{t, w},
				"%q ends with %d, after which its writer appended again", op.Key, value)
		}
	}
}

func (c *checker) lastAppend(t int, key string) (last int64) {
	for _, op := range c.history[t].Ops {
		if op.Append && op.Key == key {
			last = op.Value
		}
	}
	return last
}

// findOrders uses each key's longest read as the order of its versions; all other reads must be
// prefixes of it.
func (c *checker) findOrders() {
	longest := map[string]int{}
	each := func(visit func(t int, op Op)) {
		for t := range c.history {
			for _, op := range c.history[t].Ops {
				if c.counts[t] && !op.Append {
					visit(t, op)
				}
			}
		}
	}
	each(func(t int, op Op) {
		if len(op.List) > len(c.orders[op.Key]) {
			c.orders[op.Key], longest[op.Key] = op.List, t
		}
	})
	each(func(t int, op Op) {
		if order := c.orders[op.Key]; !slices.Equal(op.List, order[:len(op.List)]) {
			c.report(Order, op.Key, []int{t, longest[op.Key]}, "%q is read as %v and as %v", op.Key,
				op.List, order)
		}
	})
}
