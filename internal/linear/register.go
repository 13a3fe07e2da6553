package linear

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Kind is the kind of an operation.
type Kind uint8

// Kinds of operations.
const (
	Read  Kind = iota // returns Found
	Write             // sets Value unconditionally
	Swap              // atomically returns Found and sets Value
)

// Op is one operation on a register. Registers are initially empty, which is value 0.
type Op struct {
	Client int // for reports
	Key    string
	Kind   Kind
	Found  int64
	Value  int64
	// Call and Return are the times before the first message and after the last answer, in any unit
	// of a clock that all clients of the history share.
	Call, Return int64
	// Unknown reports that the client does not know whether the change took effect; Found is valid
	// nevertheless. Failed reads are omitted.
	Unknown bool
}

// String returns a line for a report.
func (o Op) String() string {
	what := fmt.Sprintf("read %d", o.Found)
	switch o.Kind {
	case Write:
		what = fmt.Sprintf("write %d", o.Value)
	case Swap:
		what = fmt.Sprintf("swap %d for %d", o.Found, o.Value)
	}
	if o.Unknown {
		what += " (outcome unknown)"
	}
	return fmt.Sprintf("[%d…%d] client %d: %s", o.Call, o.Return, o.Client, what)
}

var (
	// ErrNotLinearizable reports that no order of the operations is consistent with their times and
	// results.
	ErrNotLinearizable = errors.New("linear: not linearizable")
	// ErrUndecided reports that the time limit passed first.
	ErrUndecided = errors.New("linear: not decided in time")
	// ErrMalformed reports that the history violates an invariant of this package.
	ErrMalformed = errors.New("linear: malformed history")
)

// register is the model of one register: its state is the value.
var register = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, _ any) (bool, any) {
		op := input.(Op)
		switch op.Kind {
		case Write:
			return true, op.Value
		case Swap:
			return state.(int64) == op.Found, op.Value
		}
		return state.(int64) == op.Found, state
	},
}

// Registers checks a history of any number of registers, each separately. The error wraps
// ErrNotLinearizable, ErrUndecided or ErrMalformed and names the first faulty register. The time limit
// is per register.
func Registers(history []Op, limit time.Duration) error {
	byKey := map[string][]Op{}
	var keys []string
	for _, op := range history {
		if _, seen := byKey[op.Key]; !seen {
			keys = append(keys, op.Key)
		}
		byKey[op.Key] = append(byKey[op.Key], op)
	}
	for _, key := range keys {
		ops, err := counting(byKey[key])
		if err == nil {
			err = decide(register, ops, limit)
		}
		if err != nil {
			return fmt.Errorf("register %q: %w", key, err)
		}
	}
	return nil
}

// counting returns the operations that count, and checks that the history is well-formed. The value
// that an operation found counts as read, even if the outcome of its own change is unknown.
func counting(ops []Op) ([]porcupine.Operation, error) {
	found, writers := map[int64]bool{}, map[int64]Op{}
	for _, op := range ops {
		if op.Kind != Write {
			found[op.Found] = true
		}
		if op.Kind == Read {
			continue
		}
		if op.Value == 0 {
			return nil, fmt.Errorf("%w: %v writes 0, the value of an empty register", ErrMalformed, op)
		}
		if other, twice := writers[op.Value]; twice {
			return nil, fmt.Errorf("%w: %v and %v write the same value", ErrMalformed, op, other)
		}
		writers[op.Value] = op
	}
	var out []porcupine.Operation
	for _, op := range ops {
		end := op.Return
		switch {
		case op.Unknown && found[op.Value]:
			end = math.MaxInt64
		case op.Unknown && op.Kind == Write:
			continue
		case op.Unknown: // what the operation found counts in any case
			op.Kind = Read
		}
		if _, known := writers[op.Found]; op.Kind != Write && op.Found != 0 && !known {
			return nil, fmt.Errorf("%w: no operation wrote the value found: %v", ErrNotLinearizable, op)
		}
		out = append(out, porcupine.Operation{
			ClientId: op.Client, Input: op, Call: op.Call, Return: end,
		})
	}
	return out, nil
}

// decide runs Porcupine.
func decide(model porcupine.Model, ops []porcupine.Operation, limit time.Duration) error {
	result, info := porcupine.CheckOperationsVerbose(model, ops, limit)
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("%w: %d operations within %v", ErrUndecided, len(ops), limit)
	}
	return fmt.Errorf("%w: %d operations: %s", ErrNotLinearizable, len(ops), explain(ops, info))
}

// Limits of a report.
const (
	reportBefore = 6 // ordered operations before the unexplained one
	reportAfter  = 12
)

// explain formats the end of the longest order found, and the operations that cannot follow it.
func explain(ops []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	in := map[string]bool{}
	for _, op := range longest {
		in[fmt.Sprint(op.Input)] = true
	}
	left := slices.DeleteFunc(slices.Clone(ops), func(op porcupine.Operation) bool {
		return in[fmt.Sprint(op.Input)]
	})
	slices.SortFunc(left, func(a, b porcupine.Operation) int {
		return int(min(max(a.Return-b.Return, -1), 1))
	})
	text := "a possible order:"
	for _, op := range longest[max(0, len(longest)-reportBefore):] {
		text += fmt.Sprintf("\n  %v", op.Input)
	}
	text += "\nwhich none of these can follow:"
	for _, op := range left[:min(len(left), reportAfter)] {
		text += fmt.Sprintf("\n  %v", op.Input)
	}
	return text
}
