package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// What this node knows by itself of quorums: these series are there whatever the others
// do, for alerts to rest on.
//
// Gathering the status asks meta, for linkedPatience at most, and the outcome counts
// here. A scrape thus tells of meta as it is now, not as it was when a probe last asked.
var (
	metaAnswers = gaugeFamily("meta_answers",
		"1 while meta answers this node: it has a quorum, and the node reaches it.")
	metaAge = gaugeFamily("meta_answer_age_seconds",
		"Time since meta's last answer to this node, or since the node's start.")
	tabletsLeaderless = gaugeFamily("tablets_leaderless",
		"Tablets with a replica here that knows of no leader.")
	leaderlessAge = gaugeFamily("tablets_leaderless_longest_seconds",
		"For how long the first of them has known of none.")
	tabletsKnown = gaugeFamily("tablets_known",
		"Tablets of users' tables, as far as this node knows.")
	tabletsRatio = gaugeFamily("tablets_limit_ratio",
		"These as a part of split-max-tablets: at 1 no table is created, and none is split.")
)

// collectTablets exports how many tablets there are of those that the policy allows.
func (m exporter) collectTablets(out chan<- prometheus.Metric) {
	there := 0
	for _, d := range m.status.router.All() {
		if wire.StartOf(d).Table >= mvcc.FirstUserTable {
			there++
		}
	}
	send(out, tabletsKnown, there)
	send(out, tabletsRatio, float64(there)/float64(m.status.policy.Now().GetSplitMaxTablets()))
}

// collectQuorum exports whether meta answers and how many replicas know of no leader. A
// replica that has not answered for its status counts as having one.
func (m exporter) collectQuorum(out chan<- prometheus.Metric, status *pb.NodeStatusResponse) {
	answers, age := true, time.Duration(0) // a node that is alone has meta itself
	if s := status.GetMeta(); s != nil {
		answers, age = s.Error == "", time.Duration(s.AnsweredAgoMs)*time.Millisecond
		if s.AnsweredAgoMs < 0 { // it never has
			age = time.Since(m.status.started)
		}
	}
	send(out, metaAnswers, oneIf(answers))
	send(out, metaAge, age.Seconds())
	// Each replica counts its own ticks without a leader, in multiples of Raft's
	// interval.
	leaderless, longest := 0, int64(0)
	for _, t := range status.GetTablets() {
		if t.LeaderlessMs > 0 {
			leaderless++
			longest = max(longest, t.LeaderlessMs)
		}
	}
	send(out, tabletsLeaderless, leaderless)
	send(out, leaderlessAge, (time.Duration(longest) * time.Millisecond).Seconds())
}
