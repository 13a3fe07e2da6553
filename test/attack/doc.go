// Package attack holds no code but tests: what a hostile client, or a stranger, sends to
// a running cluster of three processes. See TestAttacks.
package attack
