//go:build !broken_grant_unchecked

package broken

// GrantUnchecked: a one-phase commit goes on when its timestamp comes, whatever has become of the leadership and of its
// reservation since (section 5, one-phase commit).
const GrantUnchecked = false
