package shell

import (
	"context"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// atTime is the value of --at: a timestamp, a time or an age. The zero value is that of an absent
// flag.
type atTime struct {
	TS      mvcc.Timestamp
	ByClock bool          // TS was computed from a time
	isAge   bool          // the timestamp is the present one minus age
	age     time.Duration // at least 0
}

// Accepted layouts of a time. RFC 3339 permits a space instead of the T.
var (
	zonedLayouts = []string{time.RFC3339Nano, "2006-01-02 15:04:05Z07:00",
		"2006-01-02T15:04Z07:00", "2006-01-02 15:04Z07:00"}
	zonelessLayouts = []string{"2006-01-02T15:04:05", time.DateTime, "2006-01-02T15:04",
		"2006-01-02 15:04", time.DateOnly}
)

// maxMillis is the last millisecond since the Unix epoch that a timestamp can hold.
const maxMillis = math.MaxUint64 >> mvcc.LogicalBits

// ParseAt parses the value of --at. Its errors are UsageErrors.
func ParseAt(cmd *cobra.Command, at string) (atTime, error) {
	if at == "" {
		return atTime{}, nil
	}
	if ts, err := strconv.ParseUint(at, 10, 64); err == nil && ts > 0 {
		return atTime{TS: mvcc.Timestamp(ts)}, nil
	}
	if age, ok := ParseAge(at); ok && at != "0" {
		return atTime{isAge: true, age: age}, nil
	}
	for _, layout := range zonedLayouts {
		t, err := time.Parse(layout, at)
		switch {
		case err != nil:
			continue
		case t.UnixMilli() <= 0 || t.UnixMilli() > maxMillis:
			return atTime{}, Usagef(cmd, "--at %s: timestamps begin in 1970 and end in 4199", at)
		}
		return atTime{TS: mvcc.TimestampAt(t.UnixMilli()), ByClock: true}, nil
	}
	for _, layout := range zonelessLayouts {
		if t, err := time.Parse(layout, at); err == nil {
			return atTime{}, Usagef(cmd, "--at %s has no time zone: write %s for UTC, or %s for "+
				"this machine's zone", at, t.Format(time.RFC3339Nano),
				time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(),
					t.Nanosecond(), time.Local).Format(time.RFC3339Nano))
		}
	}
	return atTime{}, Usagef(cmd, "--at %s: neither a timestamp, nor a time such as "+
		"2026-01-31T12:00:00Z, nor an age such as 5m or 1d, nor now", at)
}

var ageInDays = regexp.MustCompile(`^([0-9]{1,5})d(.*)$`)

// ParseAge parses a duration that may begin with days of 24 hours (1d12h), and "now".
func ParseAge(text string) (age time.Duration, ok bool) {
	if text == "now" {
		return 0, true
	}
	days, rest := 0, text
	if m := ageInDays.FindStringSubmatch(text); m != nil {
		days, _ = strconv.Atoi(m[1])
		rest = m[2]
		if rest == "" {
			rest = "0s"
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") {
		return 0, false
	}
	return time.Duration(days)*24*time.Hour + d, true
}

// Resolve returns the timestamp. For a time, not an age, it prints a note if this machine's clock
// is so far behind the cluster's timestamps that the snapshot may lack recent commits.
func (a atTime) Resolve(ctx context.Context, s *Session) (mvcc.Timestamp, error) {
	if !a.isAge && !a.ByClock {
		return a.TS, nil
	}
	now, err := s.Client.Timestamp(ctx)
	if err != nil {
		return 0, err
	}
	s.Out.noteAhead(a, now, time.Now())
	return a.timestamp(now), nil
}

// timestamp returns the timestamp, given the present one. An age is subtracted from the oracle's clock,
// not this machine's; a result before 1970 is timestamp 1.
func (a atTime) timestamp(now mvcc.Timestamp) mvcc.Timestamp {
	switch {
	case !a.isAge:
		return a.TS
	case a.age == 0:
		return now
	}
	return max(1, mvcc.TimestampAt(max(0, now.Millis()-a.age.Milliseconds())))
}

// AddAt adds --at, which reads an earlier snapshot within the history retention.
func AddAt(cmd *cobra.Command) *string {
	return cmd.Flags().String("at", "",
		"read as of a timestamp, a time (2026-01-31T12:00:00Z), an age (5m, 1d) or now")
}

// OpenSnapshot opens the snapshot of --at; an empty at means now.
func (s *Session) OpenSnapshot(ctx context.Context, at string) (*percolator.Snapshot, error) {
	parsed, err := ParseAt(nil, at)
	if err != nil {
		return nil, err
	}
	if parsed == (atTime{}) || parsed.isAge && parsed.age == 0 {
		return s.DB.Snapshot(ctx)
	}
	ts, err := parsed.Resolve(ctx, s)
	if err != nil {
		return nil, err
	}
	return s.DB.SnapshotAt(ctx, percolator.Timestamp(ts))
}

// aheadNoted is the lead of timestamps over this machine's clock above which a note is printed. Less is
// normal between synchronized clocks, and for the oracle under load.
const aheadNoted = 200 * time.Millisecond

// noteAhead prints that a snapshot as of a time may lack commits before that time, if the present
// timestamp is ahead of this machine's clock: a commit's timestamp is then later than the time at
// which it was made.
func (p *Printer) noteAhead(at atTime, now mvcc.Timestamp, clock time.Time) {
	ahead := time.Duration(now.Millis()-clock.UnixMilli()) * time.Millisecond
	if !at.ByClock || ahead <= aheadNoted {
		return
	}
	p.Note("--at: the cluster's timestamps are %v ahead of this machine's clock, as after a restart: "+
		"commits made up to that long before the given time may be missing; a timestamp, as set "+
		"prints it and `history` shows it, is exact", ahead)
}
