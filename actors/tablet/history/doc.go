// Package history decides what a tablet's leader deletes of the history below the safepoint
// (design section 4, "Bounded history"): it records which cells have garbage, and the progress of
// the deletion.
//
// Deletion consists of passes, and each pass of steps. The tablet executes a step in a turn of its
// own, like any mutation: evaluated on the newest state overlaid with the effects in flight, and
// proposed as an entry. The next step begins after it is visible. Garbage that is not remembered,
// because it is older than the leadership or did not fit into memory, is found by a survey, on a
// read worker. A tablet without garbage does nothing.
//
// Reading order: history.go, survey.go, garbage.go.
//
// A History belongs to its tablet's turns; only a survey runs elsewhere, and the reminder is sent
// from a timer's goroutine.
//
// Invariants:
//
//  1. At most one survey, one step and one reminder are under way.
//  2. A pass examines nothing above its safepoint.
//  3. Remembered garbage is bounded (MaxRemembered); what does not fit is counted by time, and
//     found by a survey.
//
// A crash, or the end of the leadership, loses nothing: the next leader surveys its tablet.
//
// Caller: actors/tablet.
package history
