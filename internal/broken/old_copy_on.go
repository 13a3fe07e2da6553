//go:build broken_old_copy

package broken

// OldCopy: a directory that was restored from an old copy registers as soon as its incarnation, which grows with each start,
// is that of the last registration (invariant 7 of package cluster).
const OldCopy = true
