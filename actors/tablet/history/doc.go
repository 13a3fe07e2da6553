// Package history is what a tablet's leader knows of the history that the safepoint has passed
// and that it deletes (design section 4, invariant 11): which cells have garbage, and how far the
// deletion has come.
//
// Deletion goes by passes, and each pass by steps. The tablet makes a step in a turn of its own,
// as any mutation: evaluated on the newest state with the effects in flight laid over it, and
// proposed as an entry. The next step begins after it is visible. What is not remembered, because
// it was there before the leadership or did not fit into memory, a survey finds, on a read
// worker. A tablet with nothing to collect does nothing.
//
// Reading order: history.go, survey.go, garbage.go.
//
// A History belongs to its tablet's turns; only a Survey runs elsewhere, and the reminder is sent
// from a timer's goroutine.
//
// Invariants:
//
//  1. At most one survey, one step and one reminder are under way.
//  2. A pass looks at nothing that its safepoint has not reached.
//  3. What is remembered is bounded (MaxRemembered); what does not fit is counted by time, and
//     found by a survey.
//
// A crash, or the end of the leadership, loses nothing: the next leader surveys its tablet.
//
// Called by: actors/tablet.
package history
