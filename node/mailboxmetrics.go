package node

import (
	"github.com/prometheus/client_golang/prometheus"
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
	tabletReadSeconds = histogramFamily("tablet_read_seconds",
		"Time to answer the reads of a batch, once they may be answered.")
	logAppendSeconds = histogramFamily("log_append_seconds",
		"Time of one write to the Raft log, its sync included.")
	logSyncSeconds    = histogramFamily("log_sync_seconds", "Time of one sync of the Raft log's files.")
	stateApplySeconds = histogramFamily("store_apply_seconds",
		"Time to make committed entries visible, those of a batch together.")
)

// collectMailboxes exports the node's mailboxes, and how long its two writers take. It
// reads atomic counters and sends no messages, so it also answers while the actors are
// stuck, which is when these figures are wanted.
func (m exporter) collectMailboxes(out chan<- prometheus.Metric) {
	total, longest := 0, 0
	for _, id := range m.tablets.router.Held() {
		// The replica may have been removed since Held.
		if port := m.tablets.router.Port(id); port != nil {
			total, longest = total+port.Queued(), max(longest, port.Queued())
		}
	}
	send(out, mailboxMessages, total, "tablet")
	send(out, mailboxLongest, longest)
	// Shared by all replicas, and kept when one of them is opened anew.
	measured := &m.tablets.metrics
	sendHistogram(out, mailboxBatch, measured.Batches.Read(), "tablet")
	sendHistogram(out, tabletReadSeconds, measured.Reads.Read())

	// The writers take whatever comes, so theirs count every message.
	log, state := m.tablets.logs.Stats()
	send(out, mailboxMessages, log.Queued, "log")
	send(out, mailboxMessages, state.Queued, "state")
	sendHistogram(out, mailboxBatch, log.Batches, "log")
	sendHistogram(out, mailboxBatch, state.Batches, "state")
	sendHistogram(out, logAppendSeconds, log.Took)
	sendHistogram(out, stateApplySeconds, state.Took)
	sendHistogram(out, logSyncSeconds, m.status.store.Syncs())

	// The oracle and lockd run on every node before it serves; a scrape that is still
	// under way when the node closes may find the oracle gone.
	if o := m.status.oracle.running.Load(); o != nil {
		send(out, mailboxMessages, o.Port().Queued(), "oracle")
		sendHistogram(out, mailboxBatch, o.Batches(), "oracle")
	}
	if l := m.lockd.Load(); l != nil {
		send(out, mailboxMessages, l.Port().Queued(), "lockd")
		sendHistogram(out, mailboxBatch, l.Stats().Batches, "lockd")
	}
}
