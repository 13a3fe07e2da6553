package node

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/percolator-go/percolator/actors/lockd"
	"github.com/percolator-go/percolator/internal/exposition"
	"github.com/percolator-go/percolator/internal/metrics"
)

// Mailboxes of the actors that work in batches, by kind: what waits, and how much of it
// is handled together, which Config.Batch tunes.
//
// All tablets of the node share one series of each metric, and one histogram that each of
// them observes in its turn. Otherwise the series would grow with the tablets. How full
// the fullest mailbox is tells whether one tablet is behind or all are.
var (
	mailboxMessages = gaugeFamily("mailbox_messages",
		"Messages that wait or are worked on, of all actors of a kind; "+
			"those that may not be refused are counted for log and state only.", "actor")
	mailboxLongest = gaugeFamily("mailbox_longest_messages",
		"The same, of the tablet with the most.")
	mailboxBatch = histogramFamily("mailbox_batch_messages",
		"Messages that were handled as one batch.", "actor")
	mailboxWait = histogramFamily("mailbox_wait_seconds",
		"Time that a message waits in a mailbox, once a batch; log and state: see their own.",
		"actor")
	tabletReadSeconds = histogramFamily("tablet_read_seconds",
		"Time to answer the reads of a batch, once they may be answered.")
	logAppendSeconds = histogramFamily("log_append_seconds",
		"Time of one write to the Raft log, its sync included.")
	logSyncSeconds    = histogramFamily("log_sync_seconds", "Time of one sync of the Raft log's files.")
	stateApplySeconds = histogramFamily("store_apply_seconds",
		"Time to make committed entries visible, those of a batch together.")
)

// mailbox is what is known of the mailboxes of all actors of a kind.
type mailbox struct {
	actor                string
	queued, longest      int               // messages that wait or are worked on; of the actor with the most
	batches, waits, took metrics.Histogram // took: to carry a batch out, of log and state; they have no waits
}

// readMailboxes reads atomic counters and sends no messages, so it also answers while the actors
// are stuck, which is when these figures are wanted.
func readMailboxes(tablets *tablets, oracle *localOracle,
	locks *atomic.Pointer[lockd.Lockd]) []mailbox {
	// Shared by all replicas, and kept when one of them is opened anew.
	measured := &tablets.metrics
	all := mailbox{
		actor: "tablet", batches: measured.Batches.Read(), waits: measured.Waits.Read(),
	}
	// The depth is each replica's own, added up here: a gauge for each of a thousand tablets
	// would be a thousand series.
	for _, id := range tablets.router.Held() {
		// The replica may have been removed since Held.
		if port := tablets.router.Port(id); port != nil {
			all.queued += port.Queued()
			all.longest = max(all.longest, port.Queued())
		}
	}
	// The writers take whatever comes, so theirs count every message.
	log, state := tablets.logs.Stats()
	out := []mailbox{
		all,
		{actor: "log", queued: int(log.Queued), batches: log.Batches, took: log.Took},
		{actor: "state", queued: int(state.Queued), batches: state.Batches, took: state.Took},
	}
	// The oracle and lockd run on every node before it serves; who asks while the node closes
	// may find the oracle gone.
	if o := oracle.running.Load(); o != nil {
		out = append(out, mailbox{
			actor: "oracle", queued: o.Port().Queued(), batches: o.Batches(), waits: o.Waits(),
		})
	}
	if l := locks.Load(); l != nil {
		stats := l.Stats()
		out = append(out, mailbox{
			actor: "lockd", queued: l.Port().Queued(), batches: stats.Batches, waits: stats.Waits,
		})
	}
	return out
}

// collectMailboxes exports the node's mailboxes, and how long its two writers take.
func (m exporter) collectMailboxes(out chan<- prometheus.Metric) {
	for _, box := range readMailboxes(m.tablets, m.status.oracle, m.lockd) {
		send(out, mailboxMessages, box.queued, box.actor)
		exposition.SendHistogram(out, mailboxBatch, box.batches, box.actor)
		switch box.actor {
		case "tablet":
			send(out, mailboxLongest, box.longest)
			exposition.SendHistogram(out, mailboxWait, box.waits, box.actor)
		case "log":
			exposition.SendHistogram(out, logAppendSeconds, box.took)
		case "state":
			exposition.SendHistogram(out, stateApplySeconds, box.took)
		default:
			exposition.SendHistogram(out, mailboxWait, box.waits, box.actor)
		}
	}
	exposition.SendHistogram(out, tabletReadSeconds, m.tablets.metrics.Reads.Read())
	exposition.SendHistogram(out, logSyncSeconds, m.status.store.Syncs())
}
