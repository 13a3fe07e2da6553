package mvcc

import (
	"strings"
	"testing"
	"testing/quick"
)

// TestTimers: a timer keeps its content, its cell contains its table, and timers of a shard are
// ordered by due time.
func TestTimers(t *testing.T) {
	check := func(table uint32, row, column string, due, later uint32, after uint16) bool {
		timer := Timer{
			Target: Cell{Table: TableID(table | 16&^1), Row: row, Column: column}, Due: int64(due),
			After: int64(after),
		}
		if timer.Target.Table >= TimerTable {
			timer.Target.Table = FirstUserTable
		}
		cell, value := timer.Write()
		got, ok := TimerOf(cell, value)
		target, isTimer := TimerTarget(cell)
		if !ok || got != timer || !isTimer || target != timer.Target.Table {
			t.Errorf("%+v is read as %+v, %t", timer, got, ok)
			return false
		}
		moved := timer
		moved.Due, moved.After = int64(due)+int64(later), 0
		at, _ := moved.Write()
		shard := int(cell.Row[0])
		return at.Row[0] == cell.Row[0] && at.Row >= cell.Row && (later == 0) == (at == cell) &&
			TimerSpan(shard, timer.Due, timer.Due+1).Contains(cell.Row) &&
			!TimerSpan(shard, 0, timer.Due).Contains(cell.Row) &&
			!TimerSpan(shard, timer.Due+1, 1<<63-1).Contains(cell.Row)
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
	// The end of a row counts, also of a long one.
	long := strings.Repeat("x", 128)
	one, _ := Timer{Target: Cell{Table: 16, Row: long, Column: "yz"}}.Write()
	other, _ := Timer{Target: Cell{Table: 16, Row: long + "y", Column: "z"}}.Write()
	if one == other {
		t.Error("timers of two cells are one")
	}
}

// TestNoTimers: an invalid timer is recognised and harmless.
func TestNoTimers(t *testing.T) {
	cell, value := Timer{Target: Cell{Table: 16, Row: "r", Column: "c"}, Due: 7}.Write()
	for what, change := range map[string]func(*Cell){
		"table":  func(c *Cell) { c.Table = 16 },
		"class":  func(c *Cell) { c.Class = ClassAck },
		"column": func(c *Cell) { c.Column = "x" },
		"shard":  func(c *Cell) { c.Row = "\x08" + c.Row[1:] },
		"short":  func(c *Cell) { c.Row = c.Row[1:] },
		"long":   func(c *Cell) { c.Row += "x" },
		"meta":   func(c *Cell) { c.Row = c.Row[:tableAt] + "\x00\x00\x00\x00" + c.Row[targetAt:] },
		"target": func(c *Cell) { c.Row = c.Row[:targetAt] + "\x01" + c.Row[targetAt+1:] },
		"itself": func(c *Cell) { c.Row = c.Row[:tableAt] + "\xff\xff\xff\xfe" + c.Row[targetAt:] },
	} {
		bad := cell
		change(&bad)
		// Only its value shows that it notifies another cell than its name says.
		if _, ok := TimerTarget(bad); ok != (what == "target") {
			t.Errorf("%s: taken for a timer: %t", what, ok)
		}
		if _, ok := TimerOf(bad, value); ok {
			t.Errorf("%s: read as a timer", what)
		}
	}
	for _, bad := range []string{"", "\x00", "\x80", "\x00\x05r", "\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		if _, ok := TimerOf(cell, []byte(bad)); ok {
			t.Errorf("the value %q is read as a timer", bad)
		}
	}
}
