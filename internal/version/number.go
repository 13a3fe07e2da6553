package version

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Version numbers of the wire and disk formats, by which builds and clusters determine their
// compatibility, and the table of features by number. All of it is constant at run time.

// Number is a version of the formats on disk and between nodes. Every build supports a range
// of them. It does not identify a build: most builds support the same numbers as their
// predecessor.
type Number uint32

const (
	// Unnumbered is the only version of builds that report none, which predate version
	// numbers. It is also the version of their store directories.
	Unnumbered Number = 2

	oldest, newest Number = 2, 8
)

// Feature is a property of the wire or disk formats that some compatible builds lack. It is
// used when the cluster's active version is at least Since: then every node supports it, and
// nodes without it cannot join.
type Feature struct {
	Name  string
	Since Number
}

// Backups are scans of records with their timestamps, the operation Restore, and the mark in
// the record of a table that is being restored. A node without them answers such a scan with
// current cells, and allows clients to write to a partially restored table.
var Backups = Feature{"backup, restore and trace", 3}

// Batches are requests that clear several notifications at once, after a run for all of them.
// A node without them rejects the request as malformed; it receives one request per cell
// instead.
var Batches = Feature{"batched observers", 3}

// Locks are locks without a write, in prewrites and one-phase commits, and their records. A
// node without them refuses the requests, and cannot read a store or snapshot with such
// records.
var Locks = Feature{"Tx.Lock", 3}

// Origins are the origins of notifications, weak intents and locks: the users' commits that
// caused them. A node without them cannot read such records, and answers a query for a
// commit's effects with all pending work of the observers.
var Origins = Feature{"waiting for a commit's effects", 3}

// Timers are in a table unknown to earlier builds, which would allow any client to write it,
// and would not fire timers.
var Timers = Feature{"durable timers", 3}

// Merges are the operations and log entries that merge two tablets. A node without them cannot
// read such an entry, and would continue to serve a tablet that no longer exists.
var Merges = Feature{"merging tablets", 4}

// Pending are the timers and weak notifications of a backup. A node without them does not
// answer requests for them, and drops those of a restore.
var Pending = Feature{"timers in backups", 4}

// Named is the name of a release in a store's VERSION file. A build without it treats the file
// as damaged.
var Named = Feature{"the release's name in VERSION", 5}

// SeveralObservers are observers of one column, of which only one has its notify entries at the
// observed cells. A node without them would notify that one alone, and delete a row that another
// one has yet to see.
var SeveralObservers = Feature{"several observers of one column", 6}

// Expiry is the expiry of cells by age, in the record of a table. A node without it creates the
// table without expiry, and deletes nothing while it leads meta.
var Expiry = Feature{"expiry by age", 6}

// ObserverVersions are the versions of observers in acknowledgments. A node without them rejects such an
// acknowledgment as malformed, and would replay all rows instead of those of older versions.
var ObserverVersions = Feature{"versions of observers", 6}

// Leases are promises between nodes, which a voter keeps beyond a crash of its process by waiting at
// the next start. A node without them would vote at once, although another leader answers reads
// under its promise.
var Leases = Feature{"leases", 7}

// AsyncCommits are locks whose existence, all together, commits their transaction. A node without
// them would roll back such a transaction at its primary, and cannot read the locks.
var AsyncCommits = Feature{"asynchronous commits", 8}

// Features returns all features, oldest first. A new feature gets the next number, or the
// newest one while no release supports that.
func Features() []Feature {
	return []Feature{
		Backups, Batches, Locks, Origins, Timers, Merges, Pending, Named, SeveralObservers, Expiry,
		ObserverVersions, Leases, AsyncCommits,
	}
}

// Range is the range of versions that a build supports: it can join a cluster at any of them.
type Range struct{ Oldest, Newest Number }

// stampedRange is set by the linker, to "OLDEST-NEWEST", in builds that upgrade tests run as
// an earlier or later version of this one. It is never written at run time.
var stampedRange string

var known = parseRange(stampedRange)

// Known returns the versions that this build supports.
func Known() Range { return known }

// parseRange parses a range. It returns this source's range for any other text.
func parseRange(text string) Range {
	from, to, _ := strings.Cut(text, "-")
	low, err := strconv.ParseUint(from, 10, 32)
	high, err2 := strconv.ParseUint(to, 10, 32)
	if err != nil || err2 != nil || low == 0 || low > high {
		return Range{oldest, newest}
	}
	return Range{Number(low), Number(high)}
}

// RangeOf returns the range reported by another process. Zeros, or a newest version below the
// oldest, mean Unnumbered.
func RangeOf(oldest, newest uint32) Range {
	r := Range{Number(oldest), Number(newest)}
	if r.Oldest == 0 || r.Newest < r.Oldest {
		return Range{Unnumbered, Unnumbered}
	}
	return r
}

// String returns "2 to 3", or "3" for a single version.
func (r Range) String() string {
	if r.Oldest == r.Newest {
		return fmt.Sprint(r.Oldest)
	}
	return fmt.Sprintf("%d to %d", r.Oldest, r.Newest)
}

// ErrIncompatible means that a build can't join a cluster or use a directory because of their
// versions. It is permanent.
var ErrIncompatible = errors.New("version: this build does not support the cluster's version")

// Agreed is the version on which a cluster has agreed.
type Agreed struct {
	// Minimum is the version that every node must support. Nodes record it in their
	// directories, so that earlier builds refuse to open them.
	Minimum Number
	// Active is the version whose features are used. It is raised to Minimum after all nodes have
	// recorded that. 0 means unknown, in a node that has not reached meta yet.
	Active Number
}

// AgreedOf returns the agreed versions. A minimum of 0 means a cluster that predates version
// numbers.
func AgreedOf(minimum, active uint32) Agreed {
	if minimum == 0 {
		return Agreed{Unnumbered, Unnumbered}
	}
	return Agreed{Number(minimum), Number(active)}
}

// Admit returns nil if a build that supports the range can join the cluster, and otherwise an
// error that wraps ErrIncompatible and states the remedy.
func (a Agreed) Admit(r Range) error {
	switch {
	case r.Newest < a.Minimum:
		return fmt.Errorf("%w: the cluster is at version %d, and the build supports %s: start a build "+
			"that supports %d, such as that of the other nodes", ErrIncompatible, a.Minimum, r, a.Minimum)
	case a.Active != 0 && r.Oldest > a.Active:
		return fmt.Errorf("%w: the cluster is at version %d, and the build supports %s: upgrade all nodes to a "+
			"build that supports %d and a later version first, and run `percolator cluster finalize`",
			ErrIncompatible, a.Active, r, a.Active)
	}
	return nil
}
