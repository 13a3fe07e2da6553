// Package idle holds no code but a measurement: what three processes cost that have
// nothing to do, without tablets and with a thousand of three replicas each. See
// TestIdle; `make idle` runs it.
package idle
