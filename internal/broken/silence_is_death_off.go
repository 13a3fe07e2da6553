//go:build !broken_silence_is_death

package broken

// SilenceIsDeath: an incarnation that gossip does not know to be alive counts as dead, also if it was never seen to die
// (section 4, invariant 7).
const SilenceIsDeath = false
