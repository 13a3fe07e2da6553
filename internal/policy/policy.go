package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Kind is the format of a setting's value.
type Kind int

// The kinds of settings. Durations are held in milliseconds.
const (
	Count Kind = iota
	Duration
	Bytes
	Switch // 0 or 1
)

// Setting is one setting of a cluster's policy.
type Setting struct {
	Name  string // as a flag of start, without its dashes, if there is one
	Kind  Kind
	About string
	least uint64
	most  uint64
	odd   bool // only odd values
	get   func(*pb.Policy) (value uint64, ok bool)
	set   func(*pb.Policy, uint64)
}

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// settings lists all settings in display order.
var settings = []Setting{
	number(func(p *pb.Policy) **uint64 { return &p.Replicas }, Setting{
		Name: "replicas", Kind: Count, About: "target number of replicas of a tablet", least: 1,
		most: 5, odd: true,
	}),
	number(func(p *pb.Policy) **uint64 { return &p.HistoryMs }, Setting{
		Name: "history", Kind: Duration, About: "how long old versions stay readable",
		least: ms(time.Second), most: ms(year),
	}),
	number(func(p *pb.Policy) **uint64 { return &p.MaxHoldMs }, Setting{
		Name: "collection-max-hold", Kind: Duration, most: ms(10 * year),
		About: "age up to which an open snapshot keeps old versions; 0: ten times the history",
	}),
	toggle(func(p *pb.Policy) **bool { return &p.NoCollection }, Setting{
		Name: "no-collection", About: "keep all old versions: the data only grows",
	}),
	number(func(p *pb.Policy) **uint64 { return &p.GoneAfterMs }, Setting{
		Name: "replace-dead-after", Kind: Duration,
		About: "how long a node may be down before its replicas are replaced", least: 1,
		most: ms(day),
	}),
	number(func(p *pb.Policy) **uint64 { return &p.ForgetAfterMs }, Setting{
		Name: "forget-after", Kind: Duration, most: ms(year),
		About: "how long a node without replicas may be down before it is forgotten; 0: forever",
	}),
	number(func(p *pb.Policy) **uint64 { return &p.SplitBytes }, Setting{
		Name: "split-size", Kind: Bytes, About: "size above which a tablet is split", least: 1,
		most: 1 << 50,
	}),
	number(func(p *pb.Policy) **uint64 { return &p.SplitLoad }, Setting{
		Name: "split-load", Kind: Count, About: "operations a second above which a tablet is split",
		least: 1, most: 1 << 50,
	}),
	number(func(p *pb.Policy) **uint64 { return &p.SplitMaxTablets }, Setting{
		Name: "split-max-tablets", Kind: Count, About: "maximum number of tablets",
		least: 1, most: 1 << 16,
	}),
	number(func(p *pb.Policy) **uint64 { return &p.ClientMaxTables }, Setting{
		Name: "client-max-tables", Kind: Count, most: 1 << 16,
		About: "tables that one client, by its identity, may have created; 0: no limit",
	}),
	number(func(p *pb.Policy) **uint64 { return &p.ClientMaxTablets }, Setting{
		Name: "client-max-tablets", Kind: Count, most: 1 << 16,
		About: "tablets of the tables that one client has created; 0: no limit",
	}),
	number(func(p *pb.Policy) **uint64 { return &p.ClientRate }, Setting{
		Name: "client-rate", Kind: Count, most: 1 << 30,
		About: "cells a second that one client may read or write by each node; 0: no limit",
	}),
	number(func(p *pb.Policy) **uint64 { return &p.ClientTableRate }, Setting{
		Name: "client-table-rate", Kind: Count, most: 1 << 30,
		About: "the same, in each table; 0: no limit",
	}),
	toggle(func(p *pb.Policy) **bool { return &p.NoSplits }, Setting{
		Name: "no-splits", About: "split tablets on request only",
	}),
	toggle(func(p *pb.Policy) **bool { return &p.Leases }, Setting{
		Name: "leases", About: "leaders answer reads under leases, without asking a quorum",
	}),
	toggle(func(p *pb.Policy) **bool { return &p.HttpLogin }, Setting{
		Name: "http-login", About: "require a login over HTTP, except for health",
	}),
}

func ms(d time.Duration) uint64 { return uint64(d.Milliseconds()) }

func number(field func(*pb.Policy) **uint64, s Setting) Setting {
	s.get = func(p *pb.Policy) (uint64, bool) {
		v := *field(p)
		if v == nil {
			return 0, false
		}
		return *v, true
	}
	s.set = func(p *pb.Policy, v uint64) { *field(p) = &v }
	return s
}

func toggle(field func(*pb.Policy) **bool, s Setting) Setting {
	s.Kind, s.most = Switch, 1
	s.get = func(p *pb.Policy) (uint64, bool) {
		v := *field(p)
		if v == nil || !*v {
			return 0, v != nil
		}
		return 1, true
	}
	s.set = func(p *pb.Policy, v uint64) { *field(p) = proto.Bool(v != 0) }
	return s
}

// Settings returns all settings in display order.
func Settings() []Setting { return slices.Clone(settings) }

// formerNames maps the former names of settings, and of flags of start, to the present ones. Both
// names work for one release after the change.
var formerNames = map[string]string{
	"expect": "bootstrap-expect", "gone-after": "replace-dead-after",
}

// CurrentName returns the present name of a setting or of a flag of start: name itself unless
// it is a former one.
func CurrentName(name string) string {
	return cmp.Or(formerNames[name], name)
}

// Named returns the setting with the present or former name.
func Named(name string) (s Setting, ok bool) {
	name = CurrentName(name)
	for _, s := range settings {
		if s.Name == name {
			return s, true
		}
	}
	return Setting{}, false
}

// Get returns the setting's value in the policy; ok is false if it is not set.
func (s Setting) Get(p *pb.Policy) (value uint64, ok bool) { return s.get(p) }

// Set sets the value in the policy.
func (s Setting) Set(p *pb.Policy, value uint64) { s.set(p, value) }

// Text formats a value as the command line accepts it.
func (s Setting) Text(value uint64) string {
	switch s.Kind {
	case Duration:
		return Millis(value).String()
	case Bytes:
		units := []string{"", "KiB", "MiB", "GiB", "TiB"}
		i := 0
		for value != 0 && value%1024 == 0 && i < len(units)-1 {
			value, i = value/1024, i+1
		}
		return strconv.FormatUint(value, 10) + units[i]
	case Switch:
		return strconv.FormatBool(value != 0)
	}
	return strconv.FormatUint(value, 10)
}

// Default returns the policy of a cluster without settings.
func Default() *pb.Policy {
	return &pb.Policy{
		Replicas: proto.Uint64(3), HistoryMs: proto.Uint64(ms(10 * time.Minute)),
		MaxHoldMs:    proto.Uint64(0),
		NoCollection: proto.Bool(false), GoneAfterMs: proto.Uint64(ms(5 * time.Minute)),
		ForgetAfterMs: proto.Uint64(ms(day)),
		SplitBytes:    proto.Uint64(96 << 20), SplitLoad: proto.Uint64(250_000),
		SplitMaxTablets: proto.Uint64(1024),
		ClientMaxTables: proto.Uint64(0), ClientMaxTablets: proto.Uint64(0),
		ClientRate: proto.Uint64(0), ClientTableRate: proto.Uint64(0),
		NoSplits: proto.Bool(false), HttpLogin: proto.Bool(false),
		Leases: proto.Bool(true),
	}
}

// Complete returns the policy with defaults for its unset settings.
func Complete(p *pb.Policy) *pb.Policy {
	out := Default()
	proto.Merge(out, p)
	return out
}

// Check returns an error if a setting present in the policy is invalid.
func Check(p *pb.Policy) error {
	for _, s := range settings {
		v, ok := s.Get(p)
		switch {
		case !ok:
		case v < s.least || v > s.most:
			return fmt.Errorf("%s=%s is not between %s and %s", s.Name, s.Text(v), s.Text(s.least),
				s.Text(s.most))
		case s.odd && v%2 == 0:
			return fmt.Errorf("%s=%s is not odd: an even number of replicas survives no more failures "+
				"than one replica less", s.Name, s.Text(v))
		}
	}
	if hold := p.GetMaxHoldMs(); hold != 0 && p.HistoryMs != nil && hold < p.GetHistoryMs() {
		return fmt.Errorf("collection-max-hold=%v is below history=%v, which is kept anyway: "+
			"raise collection-max-hold, or set it to 0 (ten times history)",
			Millis(hold), Millis(p.GetHistoryMs()))
	}
	return nil
}

// Millis returns n milliseconds as a duration.
func Millis(n uint64) time.Duration { return time.Duration(n) * time.Millisecond }
