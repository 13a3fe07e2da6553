//go:build broken_unguarded

package broken

// Unguarded: what reaches the remoting is not looked at before the library gets it (section 9).
const Unguarded = true
