//go:build broken_dropped_done

package broken

// DroppedDone: an operation that is past its sender's deadline is answered as surely not done, and done all the same
// (section 5: "surely not proposed" is only said of what is not).
const DroppedDone = true
