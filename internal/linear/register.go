package linear

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Kind is what an operation does to its register.
type Kind uint8

// Kinds of operations.
const (
	Read  Kind = iota // finds Found
	Write             // puts Value, whatever is there
	Swap              // finds Found and puts Value in its place, with nothing in between
)

// Op is one operation on a register. A register is empty at first, which is value 0.
type Op struct {
	Client int // for reports
	Key    string
	Kind   Kind
	Found  int64
	Value  int64
	// Call and Return are times of the one clock that all clients of the history share,
	// in any unit: before the first message, after the last answer.
	Call, Return int64
	// Unknown: the client was not told whether the change was made. What it found, it
	// found. Reads have no unknown outcome: those that failed are left out.
	Unknown bool
}

// String is a line for a report.
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
	// ErrNotLinearizable reports that no order of the operations that keeps to their times explains
	// what they returned.
	ErrNotLinearizable = errors.New("linear: not linearizable")
	// ErrUndecided reports that the patience ended first.
	ErrUndecided = errors.New("linear: not decided in time")
	// ErrMalformed reports that the history breaks an invariant of this package.
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

// Registers checks a history of any number of registers, each for itself. The error wraps
// ErrNotLinearizable, ErrUndecided or ErrMalformed; the first register that is wrong is
// named. patience is for each register.
func Registers(history []Op, patience time.Duration) error {
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
			err = decide(register, ops, patience)
		}
		if err != nil {
			return fmt.Errorf("register %q: %w", key, err)
		}
	}
	return nil
}

// counting returns the operations that count, and checks that the history is one. What an
// operation found was there, whatever became of its own change.
func counting(ops []Op) ([]porcupine.Operation, error) {
	found, writers := map[int64]bool{}, map[int64]Op{}
	for _, op := range ops {
		if op.Kind != Write {
			found[op.Found] = true
		}
		if op.Kind == Read {
			continue
		}
		if other, twice := writers[op.Value]; twice || op.Value == 0 {
			return nil, fmt.Errorf("%w: %v, and %v", ErrMalformed, op, other)
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
		case op.Unknown: // it has found something in any case
			op.Kind = Read
		}
		if _, known := writers[op.Found]; op.Kind != Write && op.Found != 0 && !known {
			return nil, fmt.Errorf("%w: nobody wrote what was found: %v", ErrNotLinearizable, op)
		}
		out = append(out, porcupine.Operation{
			ClientId: op.Client, Input: op, Call: op.Call, Return: end,
		})
	}
	return out, nil
}

// decide asks Porcupine.
func decide(model porcupine.Model, ops []porcupine.Operation, patience time.Duration) error {
	result, info := porcupine.CheckOperationsVerbose(model, ops, patience)
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("%w: %d operations, %v", ErrUndecided, len(ops), patience)
	}
	return fmt.Errorf("%w: %d operations: %s", ErrNotLinearizable, len(ops), explain(ops, info))
}

// The longest report.
const (
	reportBefore = 6 // operations in order before the one that nothing explains
	reportAfter  = 12
)

// explain shows the end of the longest order that was found, and what could not follow it.
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
	text := "in order:"
	for _, op := range longest[max(0, len(longest)-reportBefore):] {
		text += fmt.Sprintf("\n  %v", op.Input)
	}
	text += "\nand then none of:"
	for _, op := range left[:min(len(left), reportAfter)] {
		text += fmt.Sprintf("\n  %v", op.Input)
	}
	return text
}
