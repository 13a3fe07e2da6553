// Package attack contains only tests: attacks of hostile clients and of strangers on a running
// cluster of three processes. See TestAttacks.
package attack
