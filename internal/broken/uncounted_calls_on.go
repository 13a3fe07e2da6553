//go:build broken_uncounted_calls

package broken

// UncountedCalls: single calls are done whatever the answers take that clients have not read.
const UncountedCalls = true
