package linear

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// Stamp is one answer of the oracle: the timestamps First to First+Count-1. A request without an answer is left out: its
// timestamps are nobody's.
type Stamp struct {
	Client       int // for reports
	First        uint64
	Count        int
	Call, Return int64 // as Op's
}

// String is a line for a report.
func (s Stamp) String() string {
	return fmt.Sprintf("[%d…%d] client %d: %d timestamps from %d", s.Call, s.Return, s.Client, s.Count, s.First)
}

// oracle is the model of the oracle: its state is the last timestamp given out.
var oracle = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, _ any) (bool, any) {
		s := input.(Stamp)
		return s.Count > 0 && s.First > state.(uint64), s.First + uint64(max(s.Count, 1)) - 1
	},
}

// Oracle checks that timestamps strictly increase in real-time order, and that none was given out twice. The error is as
// that of Registers.
func Oracle(history []Stamp, patience time.Duration) error {
	ops := make([]porcupine.Operation, len(history))
	for i, s := range history {
		ops[i] = porcupine.Operation{ClientId: s.Client, Input: s, Call: s.Call, Return: s.Return}
	}
	if err := decide(oracle, ops, patience); err != nil {
		return fmt.Errorf("oracle: %w", err)
	}
	return nil
}
