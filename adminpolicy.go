package percolator

import (
	"context"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// Policy is the policy of a cluster, which overrides the configuration of its nodes. `percolator
// cluster show` lists the settings with their ranges.
type Policy struct {
	Version           uint64        // grows with every change; SetPolicy ignores it
	Replicas          int           // target number of replicas of a tablet: 1, 3 or 5
	History           time.Duration // how long old versions stay readable
	CollectionMaxHold time.Duration // maximum age of held versions, as by snapshots; 0: 10·History
	NoCollection      bool          // keep all old versions
	ReplaceDeadAfter  time.Duration // how long a node may be down before its replicas are replaced
	ForgetAfter       time.Duration // how long meta keeps a down node without replicas; 0: forever
	SplitSize         uint64        // bytes above which a tablet is split
	SplitLoad         uint64        // operations per second above which a tablet is split
	SplitMaxTablets   int           // maximum number of tablets
	NoSplits          bool          // split and merge tablets on request only
	ClientMaxTables   int           // maximum number of tables created by one client; 0: no limit
	ClientMaxTablets  int           // maximum number of tablets of these tables; 0: no limit
	ClientRate        int           // cells/s that each node reads or writes for one client; 0: no limit
	ClientTableRate   int           // as ClientRate, but of each table separately; 0: no limit
	HTTPLogin         bool          // require a login over HTTP, except for health
	Leases            bool          // leaders answer reads under leases, without asking a quorum
}

// Policy returns the policy of the cluster. Role: reader.
func (a *Admin) Policy(ctx context.Context) (Policy, error) {
	resp, err := call(ctx, a, pb.AdminClient.ClusterPolicy, &pb.ClusterPolicyRequest{})
	if err != nil {
		return Policy{}, err
	}
	return policyOf(resp.GetPolicy()), nil
}

// SetPolicy calls change with the policy of the cluster, stores the settings that change has
// altered, all or none, and returns the result when every live node has it. Concurrent changes of
// other settings are kept. Durations are whole milliseconds. After an error the policy may
// have changed all the same, for example if a live node has not confirmed it. Role: operator.
func (a *Admin) SetPolicy(ctx context.Context, change func(*Policy)) (Policy, error) {
	was, err := a.Policy(ctx)
	if err != nil {
		return Policy{}, err
	}
	is := was
	change(&is)
	set, changed, err := policyDifference(&was, &is)
	if err != nil || !changed {
		return was, err
	}
	resp, err := call(ctx, a, pb.AdminClient.ClusterPolicy, &pb.ClusterPolicyRequest{Set: set})
	if err != nil {
		return was, err
	}
	return policyOf(resp.GetPolicy()), nil
}

func policyOf(p *pb.Policy) Policy {
	millis := func(n uint64) time.Duration { return time.Duration(n) * time.Millisecond }
	return Policy{
		Version: p.GetVersion(), Replicas: int(p.GetReplicas()), History: millis(p.GetHistoryMs()),
		CollectionMaxHold: millis(p.GetMaxHoldMs()), NoCollection: p.GetNoCollection(),
		ReplaceDeadAfter: millis(p.GetGoneAfterMs()), ForgetAfter: millis(p.GetForgetAfterMs()),
		SplitSize: p.GetSplitBytes(), SplitLoad: p.GetSplitLoad(),
		SplitMaxTablets: int(p.GetSplitMaxTablets()), NoSplits: p.GetNoSplits(),
		ClientMaxTables:  int(p.GetClientMaxTables()),
		ClientMaxTablets: int(p.GetClientMaxTablets()), ClientRate: int(p.GetClientRate()),
		ClientTableRate: int(p.GetClientTableRate()), HTTPLogin: p.GetHttpLogin(), Leases: p.GetLeases(),
	}
}

// policyDifference returns a request for the settings that differ.
func policyDifference(was, is *Policy) (set *pb.Policy, changed bool, err error) {
	set = &pb.Policy{}
	number := func(to **uint64, name string, was, is int64) {
		if was == is {
			return
		}
		if is < 0 {
			err = txn.Invalid("policy: %s is negative", name)
		}
		value := uint64(is)
		*to, changed = &value, true
	}
	duration := func(to **uint64, name string, was, is time.Duration) {
		if is%time.Millisecond != 0 {
			err = txn.Invalid("policy: %s of %v is not in whole milliseconds", name, is)
		}
		number(to, name, was.Milliseconds(), is.Milliseconds())
	}
	toggle := func(to **bool, was, is bool) {
		if was != is {
			*to, changed = &is, true
		}
	}
	number(&set.Replicas, "Replicas", int64(was.Replicas), int64(is.Replicas))
	duration(&set.HistoryMs, "History", was.History, is.History)
	duration(&set.MaxHoldMs, "CollectionMaxHold", was.CollectionMaxHold, is.CollectionMaxHold)
	toggle(&set.NoCollection, was.NoCollection, is.NoCollection)
	duration(&set.GoneAfterMs, "ReplaceDeadAfter", was.ReplaceDeadAfter, is.ReplaceDeadAfter)
	duration(&set.ForgetAfterMs, "ForgetAfter", was.ForgetAfter, is.ForgetAfter)
	number(&set.SplitBytes, "SplitSize", int64(was.SplitSize), int64(is.SplitSize))
	number(&set.SplitLoad, "SplitLoad", int64(was.SplitLoad), int64(is.SplitLoad))
	number(&set.SplitMaxTablets, "SplitMaxTablets", int64(was.SplitMaxTablets), int64(is.SplitMaxTablets))
	toggle(&set.NoSplits, was.NoSplits, is.NoSplits)
	number(&set.ClientMaxTables, "ClientMaxTables", int64(was.ClientMaxTables), int64(is.ClientMaxTables))
	number(&set.ClientMaxTablets, "ClientMaxTablets", int64(was.ClientMaxTablets),
		int64(is.ClientMaxTablets))
	number(&set.ClientRate, "ClientRate", int64(was.ClientRate), int64(is.ClientRate))
	number(&set.ClientTableRate, "ClientTableRate", int64(was.ClientTableRate), int64(is.ClientTableRate))
	toggle(&set.HttpLogin, was.HTTPLogin, is.HTTPLogin)
	toggle(&set.Leases, was.Leases, is.Leases)
	return set, changed, err
}
