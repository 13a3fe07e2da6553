// Package idle contains only a measurement: the processor time of three idle processes, without
// tablets and with a thousand tablets of three replicas each. See TestIdle; `make idle` runs it.
package idle
