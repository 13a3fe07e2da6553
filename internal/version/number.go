package version

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// This file has the numbers by which builds and clusters know what they can do together,
// and the table of what came with which number. Nothing in it changes while a process runs.

// Number is a version of what nodes write to their disks and say to each other. Every build
// knows a range of them. It is no build's name: most builds know the same numbers as the
// one before.
type Number uint32

const (
	// Unnumbered is the only version that builds know which tell none: they came before
	// there were numbers. It is also what a store's directory of theirs says.
	Unnumbered Number = 2

	oldest, newest Number = 2, 5
)

// Feature is something on the wire or on disk that not all builds know which this one works
// with. It is used once the cluster's active version is Since or later: then every node
// knows it, and none that does not is let in any more.
type Feature struct {
	Name  string
	Since Number
}

// Backups are scans of records with their timestamps, the operation Restore, and the mark in
// the record of a table that is being restored. A node that does not know them answers such
// a scan with cells as they are now, and lets clients write to a table that is half restored.
var Backups = Feature{"backup, restore and trace", 3}

// Batches are requests that clear several notifications at once, after a run for all of them.
// A node that does not know them takes the request for a malformed one; it is sent one for
// each cell.
var Batches = Feature{"batched observers", 3}

// Locks are locks without a write, in prewrites and one-phase commits, and the entries that
// they leave. A node that does not know them refuses the requests, and cannot read a store or
// a snapshot with such entries.
var Locks = Feature{"Tx.Lock", 3}

// Origins are those of notifications, weak intents and locks: which users' commits they go
// back to. A node that does not know them can't read such records, and answers who asks for
// a commit's effects with what waits for observers at all.
var Origins = Feature{"waiting for a commit's effects", 3}

// Timers are in a table of which earlier builds know nothing: they would let any client
// write there, and fire none.
var Timers = Feature{"durable timers", 3}

// Merges are the operations and entries that merge two tablets into one. A node that does not
// know them cannot read such an entry, and would go on with a tablet that is gone.
var Merges = Feature{"merging tablets", 4}

// Pending are the timers and weak notifications of a backup. A node that does not know them
// answers no request for them, and drops those that a restore sends.
var Pending = Feature{"timers in backups", 4}

// Named is the name of a release in a store's VERSION file. A build that does not know it
// takes the file for a damaged one.
var Named = Feature{"the release's name in VERSION", 5}

// Features are all of them, in the order in which they came. A new one takes the next
// number, unless no build that was released knows that yet.
func Features() []Feature {
	return []Feature{Backups, Batches, Locks, Origins, Timers, Merges, Pending, Named}
}

// Range is the versions that a build knows: it can be a node of a cluster that is at one of
// them.
type Range struct{ Oldest, Newest Number }

// stampedRange is set by the linker, to "OLDEST-NEWEST", in builds that tests of upgrades
// run as an earlier or a later version of this one. It is never written at run time.
var stampedRange string

var known = parseRange(stampedRange)

// Known returns the versions that this build knows.
func Known() Range { return known }

// parseRange returns the range that the text says, and this source's own for any other text.
func parseRange(text string) Range {
	from, to, _ := strings.Cut(text, "-")
	low, err := strconv.ParseUint(from, 10, 32)
	high, err2 := strconv.ParseUint(to, 10, 32)
	if err != nil || err2 != nil || low == 0 || low > high {
		return Range{oldest, newest}
	}
	return Range{Number(low), Number(high)}
}

// RangeOf returns the range that another process has told, in which zeros mean that it knows
// of no numbers.
func RangeOf(oldest, newest uint32) Range {
	r := Range{Number(oldest), Number(newest)}
	if r.Oldest == 0 || r.Newest < r.Oldest {
		return Range{Unnumbered, Unnumbered}
	}
	return r
}

// String is "2 to 3", or "3".
func (r Range) String() string {
	if r.Oldest == r.Newest {
		return fmt.Sprint(r.Oldest)
	}
	return fmt.Sprintf("%d to %d", r.Oldest, r.Newest)
}

// ErrIncompatible reports that a build can't be a node of a cluster, or can't use a directory,
// because of their versions. Waiting does not help.
var ErrIncompatible = errors.New("version: this build does not work with the cluster's version")

// Agreed is what a cluster has agreed on.
type Agreed struct {
	// Minimum is the version that every node must know. The directories of nodes say it, so
	// that earlier builds leave them alone.
	Minimum Number
	// Active is the version whose features are used; it follows Minimum, once all nodes
	// have taken note of that. 0: not known, by a node that has yet to reach meta.
	Active Number
}

// AgreedOf returns what the numbers say. A minimum of 0 is of a cluster that knows of no
// numbers.
func AgreedOf(minimum, active uint32) Agreed {
	if minimum == 0 {
		return Agreed{Unnumbered, Unnumbered}
	}
	return Agreed{Number(minimum), Number(active)}
}

// Admit returns nil if a build that knows the range can be a node of the cluster, else
// ErrIncompatible with what to do.
func (a Agreed) Admit(r Range) error {
	switch {
	case r.Newest < a.Minimum:
		return fmt.Errorf("%w: the cluster is at version %d, and the build knows %s: start a build "+
			"that knows %d, such as the other nodes run", ErrIncompatible, a.Minimum, r, a.Minimum)
	case a.Active != 0 && r.Oldest > a.Active:
		return fmt.Errorf("%w: the cluster is at version %d, and the build knows %s: upgrade all nodes to a "+
			"build that knows %d and a later one first, and finish that by `percolator cluster finalize`",
			ErrIncompatible, a.Active, r, a.Active)
	}
	return nil
}
