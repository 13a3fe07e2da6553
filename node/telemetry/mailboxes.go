package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/store"
)

// mailbox contains the figures of the mailboxes of all actors of a kind with batches; Config.Batch
// tunes their size.
type mailbox struct {
	actor string
	// queued counts waiting and current messages of all actors of the kind, longest those of the
	// actor with the most.
	queued, longest int
	// took is the duration of a batch. Only the kinds log and state have it; they have no waits.
	batches, waits, took metrics.Histogram
}

var (
	mailboxTable = table[mailbox]{
		gauge("mailbox_messages",
			"Messages that wait or are in hand, of all actors of a kind; messages that cannot be refused count for log and state only.",
			func(m mailbox) int { return m.queued }, "actor"),
		histogram("mailbox_batch_messages", "Messages handled as one batch.",
			func(m mailbox) metrics.Histogram { return m.batches }, "actor"),
	}
	mailboxLongest = gauge("mailbox_longest_messages",
		"mailbox_messages of the tablet with the most.", the[int])
	mailboxWait = histogram("mailbox_wait_seconds",
		"Time that the first message of a batch waits in a mailbox. Log and state have histograms of their own.",
		the[metrics.Histogram], "actor")
	logAppend = histogram("log_append_seconds",
		"Time of one write to the Raft log, including its sync.", the[metrics.Histogram])
	logSync = histogram("log_sync_seconds", "Time of one sync of the Raft log's files.",
		(*store.Store).Syncs)
	stateApply = histogram("store_apply_seconds",
		"Time to make the committed entries of a batch visible.", the[metrics.Histogram])
)

// mailboxes reads atomic counters and sends no messages, so that it also answers while the
// actors are stuck. All tablets share one histogram and one series: a series for each would
// grow with the tablets.
func (s *Sources) mailboxes() []mailbox {
	measured := s.Tablets.Measured
	all := mailbox{
		actor: "tablet", batches: measured.Batches.Read(), waits: measured.Waits.Read(),
	}
	for _, id := range s.Router.Held() {
		// The replica may have been removed since Held.
		if port := s.Router.Port(id); port != nil {
			all.queued += port.Queued()
			all.longest = max(all.longest, port.Queued())
		}
	}
	// The writers refuse nothing, so their figures count every message.
	log, state := s.Tablets.Writers.Stats()
	out := []mailbox{
		all,
		{actor: "log", queued: int(log.Queued), batches: log.Batches, took: log.Took},
		{actor: "state", queued: int(state.Queued), batches: state.Batches, took: state.Took},
	}
	if o := s.Oracle(); o != nil {
		out = append(out, mailbox{
			actor: "oracle", queued: o.Port().Queued(), batches: o.Batches(), waits: o.Waits(),
		})
	}
	if l := s.Lockd(); l != nil {
		stats := l.Stats()
		out = append(out, mailbox{
			actor: "lockd", queued: l.Port().Queued(), batches: stats.Batches, waits: stats.Waits,
		})
	}
	return out
}

// collectMailboxes exports the mailboxes and the durations of the two writers' batches.
func (e *Exporter) collectMailboxes(out chan<- prometheus.Metric) {
	for _, box := range e.mailboxes() {
		mailboxTable.send(out, box, box.actor)
		switch box.actor {
		case "tablet":
			mailboxLongest(out, box.longest)
			mailboxWait(out, box.waits, box.actor)
		case "log":
			logAppend(out, box.took)
		case "state":
			stateApply(out, box.took)
		default:
			mailboxWait(out, box.waits, box.actor)
		}
	}
	logSync(out, e.Store)
}
