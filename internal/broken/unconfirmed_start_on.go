//go:build broken_unconfirmed_start

package broken

// UnconfirmedStart: a node that comes back votes before others have confirmed that its directory is no old copy (section 10).
const UnconfirmedStart = true
