package history

import "testing"

// TestOneReminder: a history that starts over while a reminder is pending, as in a split, does not
// send a second one.
func TestOneReminder(t *testing.T) {
	sent := 0
	h := New(func() { sent++ })
	h.Begin(1, 0)
	if sent != 1 {
		t.Fatalf("%d reminders of the first pass", sent)
	}
	h.Forget()
	if h.Begin(1, 0); sent != 1 {
		t.Errorf("%d reminders are under way after a split", sent)
	}
}
