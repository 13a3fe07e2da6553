package meta

import (
	"bytes"
	"context"
	"crypto/sha256"
	"math"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Two records: the progress of history collection, and the leases on old versions. A safepoint is
// chosen on condition that the leases have not changed, and a lease is granted on condition that
// the safepoint has not, so one of two concurrent writers sees the other. Callers are the
// collector on the node that leads meta and, for leases, any node on behalf of its clients, each
// on its own goroutine; nothing is cached.

// Rows of the two records.
const (
	rowCollection = "collect"
	rowLeases     = "holds"
)

// History holds the progress of history collection and the leases that limit it.
type History struct{ records }

// Limits of leases on history: their number in all and of one origin (a host), the bytes of a
// holder's name, an origin and a token, and their duration.
const (
	maxLeases     = 1024
	maxLeasesEach = 128
	maxHolder     = 128
	maxOrigin     = 128
	maxToken      = 64
	maxLeaseTTL   = time.Minute
	// maxBackupHolds limits the leases for backups, which belong to no process. They stay until
	// released, but hold nothing once older than the policy's maximum hold. One certificate's name
	// may have at most maxBackupHoldsEach, so that a stolen certificate, or a program that forgets
	// its holds, does not exhaust those of others.
	maxBackupHolds     = 64
	maxBackupHoldsEach = 16
)

// Collection returns the progress of history collection and the leases on history. Neither is
// nil.
func (h *History) Collection(ctx context.Context) (*wire.Collection, *wire.Leases, error) {
	c, _, err := load[*wire.Collection](ctx, h.records, rowCollection)
	if err != nil {
		return nil, nil, err
	}
	l, _, err := load[*wire.Leases](ctx, h.records, rowLeases)
	return c, l, err
}

// SaveCollection replaces the record from, as it was read, by to, which gets the next version. It
// returns false and changes nothing after a conflict.
//
// If seen is not nil, it also requires that the leases are unchanged: a safepoint must respect
// every lease granted since they were read.
func (h *History) SaveCollection(ctx context.Context, from, to *wire.Collection,
	seen *wire.Leases) (bool, error) {
	now, old, err := load[*wire.Collection](ctx, h.records, rowCollection)
	// The version identifies the record: two of one version are equal.
	if err != nil || now.Version != from.Version {
		return false, err
	}
	to.Version = from.Version + 1
	value, err := encode(to)
	if err != nil {
		return false, err
	}
	changes := []change{{row: rowCollection, old: old, value: value}}
	if seen != nil {
		have, err := h.get(ctx, rowLeases)
		if err != nil {
			return false, err
		}
		// Leases are compared by their encoding, which is deterministic.
		want, err := encode(seen)
		if err != nil || !slices.Equal(have, want) {
			return false, err
		}
		// The leases' record is written with its own value, so that it is a condition of this
		// write, too.
		changes = append(changes, change{row: rowLeases, old: have, value: have})
	}
	return h.swap(ctx, changes...)
}

// HoldHistory grants, renews or (with an Oldest or a TtlMs of 0) ends a lease on history. now is a
// new oracle timestamp: leases expire by oracle time, so that they survive restarts and depend on
// no other clock. The response's bound is exact: versions at or above both it and req.Oldest stay
// readable while the lease is in force and the policy's maximum hold has not passed since Oldest.
//
// A lease belongs to the holder of its token. Operators and clients see the holders' names; the
// same name with another token is another lease.
func (h *History) HoldHistory(
	ctx context.Context, now mvcc.Timestamp, req *pb.HoldHistoryRequest,
) (*pb.HoldHistoryResponse, error) {
	name, origin := wire.Origin(req.Holder)
	if name == "" || len(name) > maxHolder || len(origin) > maxOrigin {
		return nil, refuse(pb.Error_CODE_INVALID,
			"a holder's name has 1 to %d bytes and its origin at most %d, not %d and %d",
			maxHolder, maxOrigin, len(name), len(origin))
	}
	if len(req.Token) > maxToken {
		return nil, refuse(pb.Error_CODE_INVALID, "a holder's token has at most %d bytes", maxToken)
	}
	// A longer duration is reduced, not rejected: the response has the granted one, and holders
	// renew.
	ttl := min(time.Duration(req.TtlMs)*time.Millisecond, maxLeaseTTL)
	lease := &wire.Lease{
		Holder: req.Holder, TokenHash: tokenHash(req.Token), Oldest: min(req.Oldest, uint64(now)),
		Expires: uint64(mvcc.TimestampAt(now.Millis() + ttl.Milliseconds())),
	}
	// A lease of no duration is one being released.
	if ttl == 0 {
		lease.Oldest = 0
	}
	out := &pb.HoldHistoryResponse{TtlMs: uint32(ttl.Milliseconds())}
	if err := h.changeLeases(ctx, func(leases *wire.Leases, bound uint64) error {
		out.Bound = bound
		return replaceLease(leases, lease, now)
	}); err != nil {
		return nil, err
	}
	return out, nil
}

// changeLeases changes the leases in one write with the collection record, whose bound it passes
// to apply: every later safepoint respects these leases, and no earlier one is above that bound.
// apply may be called again with newer records.
func (h *History) changeLeases(ctx context.Context,
	apply func(leases *wire.Leases, bound uint64) error) error {
	_, err := update(ctx, h.records, rowLeases,
		func(leases *wire.Leases) (*wire.Leases, []change, error) {
			c, collect, err := load[*wire.Collection](ctx, h.records, rowCollection)
			if err != nil {
				return nil, nil, err
			}
			if leases == nil {
				leases = &wire.Leases{}
			}
			same := change{row: rowCollection, old: collect, keep: true}
			return leases, []change{same}, apply(leases, c.Target)
		})
	return err
}

// HoldBackup holds history for the next increment of a backup, if requested, and ends the holds in
// req.Release, all in one write. The response's bound is that of HoldHistory; a hold below it is not
// granted.
//
// Such a lease belongs to no process: it survives the one that made the backup, and lasts as long
// as the policy allows. A release without a token ends the backup's hold whatever its token, and fails
// if there is none; rpc.Guard, in front of the service, permits it to operators only.
func (h *History) HoldBackup(ctx context.Context, now mvcc.Timestamp,
	req *pb.HoldBackupRequest) (*pb.HoldBackupResponse, error) {
	hold, out := req.GetHold(), &pb.HoldBackupResponse{}
	if hold != nil && (hold.Backup == "" || len(hold.Backup) > maxHolder ||
		len(hold.Token) == 0 || len(hold.Token) > maxToken) {
		return nil, refuse(pb.Error_CODE_INVALID, "a backup's name must have 1 to %d bytes and its token 1 to %d",
			maxHolder, maxToken)
	}
	err := h.changeLeases(ctx, func(leases *wire.Leases, bound uint64) error {
		for _, r := range req.GetRelease() {
			if !releaseBackup(leases, r) && len(r.Token) == 0 {
				return refuse(pb.Error_CODE_INVALID, "no history is held for a backup %q: "+
					"`percolator cluster show` lists the backups with holds", r.Backup)
			}
		}
		if out.Bound = bound; hold == nil || bound > hold.At {
			return nil
		}
		return addBackup(leases, hold, now)
	})
	return out, err
}

// releaseBackup removes the lease of a backup, and reports whether it existed.
func releaseBackup(leases *wire.Leases, r *pb.BackupHold) bool {
	n := len(leases.Leases)
	leases.Leases = slices.DeleteFunc(leases.Leases, func(l *wire.Lease) bool {
		return l.Backup && l.Holder == r.Backup &&
			(len(r.Token) == 0 || bytes.Equal(l.TokenHash, tokenHash(r.Token)))
	})
	return len(leases.Leases) < n
}

// addBackup adds the lease of a backup, or leaves an equal one unchanged. It rejects another hold
// of the same backup.
func addBackup(leases *wire.Leases, hold *pb.BackupHold, now mvcc.Timestamp) error {
	n, own := 0, 0
	for _, l := range leases.Leases {
		switch {
		case !l.Backup:
		case l.Holder != hold.Backup:
			n++
			if hold.By != "" && l.By == hold.By {
				own++
			}
		case bytes.Equal(l.TokenHash, tokenHash(hold.Token)) && l.Oldest == hold.At:
			return nil
		default:
			return refuse(pb.Error_CODE_PERMISSION, "history is held for another backup of the same name, %q: end that hold "+
				"by `percolator backup release` first", hold.Backup)
		}
	}
	if n >= maxBackupHolds {
		return refuse(pb.Error_CODE_OVERLOADED, "history is held for %d backups, the maximum: "+
			"end some by `percolator backup release`; `percolator cluster show` lists them", n)
	}
	if own >= maxBackupHoldsEach {
		return refuse(pb.Error_CODE_OVERLOADED, "history is held for %d backups of %q, the maximum for "+
			"one certificate's name: end some by `percolator backup release`", own, hold.By)
	}
	leases.Leases = append(leases.Leases, &wire.Lease{
		By: hold.By, Holder: hold.Backup, TokenHash: tokenHash(hold.Token), Oldest: min(hold.At, uint64(now)),
		Expires: math.MaxUint64, Backup: true,
	})
	return nil
}

// BackupHolds returns the leases for backups, without their tokens.
func (h *History) BackupHolds(ctx context.Context) ([]*pb.BackupHold, error) {
	leases, _, err := load[*wire.Leases](ctx, h.records, rowLeases)
	if err != nil {
		return nil, err
	}
	return wire.BackupHolds(leases), nil
}

// tokenHash returns the stored form of a token, nil for an empty one. It is a hash because every
// client can read meta's records.
func tokenHash(token []byte) []byte {
	if len(token) == 0 {
		return nil
	}
	sum := sha256.Sum256(token)
	return sum[:]
}

// replaceLease replaces its holder's earlier lease by lease and removes every lease that has
// expired at now. With Oldest 0 it only removes. It edits leases in place; on an error the result
// must not be stored.
func replaceLease(leases *wire.Leases, lease *wire.Lease, now mvcc.Timestamp) error {
	mine, others := 0, 0 // leases of that name
	leases.Leases = slices.DeleteFunc(leases.Leases, func(l *wire.Lease) bool {
		// Every call removes the expired ones, so the record stays bounded without a job.
		if l.Expires <= uint64(now) {
			return true
		}
		if l.Holder != lease.Holder || l.Backup || l.Subscription {
			return false
		}
		if !bytes.Equal(l.TokenHash, lease.TokenHash) {
			others++
			return false
		}
		mine++
		return true
	})
	if lease.Oldest == 0 {
		// Releasing a lease that may have expired is no error; releasing another holder's is.
		if mine == 0 && others > 0 {
			return refuse(pb.Error_CODE_PERMISSION,
				"the lease of %q must be released with the token that acquired it", lease.Holder)
		}
		return nil
	}
	leases.Leases = append(leases.Leases, lease)
	_, origin := wire.Origin(lease.Holder)
	if n := ofOrigin(leases, origin); origin != "" && n > maxLeasesEach {
		return refuse(pb.Error_CODE_OVERLOADED,
			"%d processes of %s hold history; at most %d: release leases, or wait until they expire",
			n-1, origin, maxLeasesEach)
	}
	if len(leases.Leases) > maxLeases {
		n := len(leases.Leases) - 1
		return refuse(pb.Error_CODE_OVERLOADED, "there are %d leases on history, of processes, "+
			"backups and subscriptions; at most %d", n, maxLeases)
	}
	return nil
}

// ofOrigin returns the number of leases of the origin.
func ofOrigin(leases *wire.Leases, origin string) (n int) {
	for _, l := range leases.Leases {
		if _, from := wire.Origin(l.Holder); from == origin {
			n++
		}
	}
	return n
}
