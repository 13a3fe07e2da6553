package linear

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Stamp is one answer of the oracle: the timestamps First to First+Count-1. Requests without an
// answer are omitted, because no client uses their timestamps.
type Stamp struct {
	Client       int // for reports
	First        uint64
	Count        int
	Call, Return int64 // as Op's
}

// String returns a line for a report.
func (s Stamp) String() string {
	return fmt.Sprintf("[%d…%d] client %d: %d timestamps from %d", s.Call, s.Return, s.Client,
		s.Count, s.First)
}

// oracle is the model of the oracle: its state is the last timestamp issued.
var oracle = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, _ any) (bool, any) {
		s := input.(Stamp)
		return s.Count > 0 && s.First > state.(uint64), s.First + uint64(max(s.Count, 1)) - 1
	},
}

// maxDecided limits the answers passed to Porcupine, whose memory grows with the square of their
// number.
const maxDecided = 2000

// Oracle checks that timestamps strictly increase in real-time order, and that none was issued twice.
// Its errors are those of Registers. With more than maxDecided answers it uses sorted alone, which
// is also exact: the order of the timestamps is the only possible one.
func Oracle(history []Stamp, limit time.Duration) error {
	err := sorted(history)
	if len(history) > maxDecided {
		return err
	}
	ops := make([]porcupine.Operation, len(history))
	for i, s := range history {
		ops[i] = porcupine.Operation{ClientId: s.Client, Input: s, Call: s.Call, Return: s.Return}
	}
	if decided := decide(oracle, ops, limit); decided != nil {
		return fmt.Errorf("oracle: %w", decided)
	}
	if err != nil {
		return fmt.Errorf("%w (Porcupine finds an order)", err)
	}
	return nil
}

// sorted sorts a copy of the answers by timestamp, and checks that no two have a timestamp in
// common, and that none was requested after one with later timestamps had arrived.
func sorted(history []Stamp) error {
	order := slices.Clone(history)
	slices.SortFunc(order, func(a, b Stamp) int { return cmp.Compare(a.First, b.First) })
	latest := -1 // the earlier answer with the latest Call
	for i, s := range order {
		switch {
		case s.Count <= 0, i > 0 && s.First < order[i-1].First+uint64(order[i-1].Count):
			return fmt.Errorf("oracle: %w: %v, and %v", ErrNotLinearizable, order[max(0, i-1)], s)
		case latest >= 0 && s.Return < order[latest].Call:
			return fmt.Errorf("oracle: %w: %v was requested after %v had arrived", ErrNotLinearizable, order[latest], s)
		}
		if latest < 0 || s.Call > order[latest].Call {
			latest = i
		}
	}
	return nil
}
