//go:build broken_any_token

package broken

// AnyToken: a lease on history is ended by whoever knows its holder's name.
const AnyToken = true
