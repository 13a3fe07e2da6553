package node

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Traffic with other nodes, in three layers: snapshots of tablets, then the requests and
// batches that carry everything else (peer), then the connections under them (remoting).
// All are atomic counters of those parts, read when somebody scrapes; only the replicas'
// figures take a lock, that of their set.
//
// One fault shows in several layers: a connection that breaks counts as lost there, and
// the batches that could not go as unsent in the layer above.
var (
	snapshotSent = counterFamily("snapshot_sent_total",
		"Snapshots of tablets that another node's replica has taken from this node.")
	snapshotFailed = counterFamily("snapshot_failed_total",
		"Snapshots of tablets that another node did not take from this node.")
	snapshotBytes     = counterFamily("snapshot_sent_bytes_total", "Bytes of snapshots sent.")
	snapshotInstalled = counterFamily("snapshot_installed_total",
		"Snapshots of tablets that have replaced a replica's state here.")
	snapshotRefused = counterFamily("snapshot_refused_total",
		"Pieces of snapshots that this node has refused.")
	replicasClosed = gaugeFamily("replicas_closed",
		"Replicas that do not run because a snapshot could not be installed.")

	peerRequests = counterFamily("peer_requests_total", "Requests to other nodes.")
	peerAnswers  = counterFamily("peer_answers_total", "Answers that somebody waited for.")
	peerLate     = counterFamily("peer_late_answers_total",
		"Answers that nobody waited for any more.")
	peerOverloaded = counterFamily("peer_overloaded_total",
		"Requests to other nodes that failed because too much was under way.")
	peerHandled = counterFamily("peer_handled_total",
		"Requests of other nodes that were handled.")
	peerRefused = counterFamily("peer_refused_total",
		"Requests of other nodes that were refused because too many were handled.")
	peerRaft        = counterFamily("peer_raft_messages_total", "Raft messages to other nodes.")
	peerRaftDropped = counterFamily("peer_raft_dropped_total",
		"Raft messages that were dropped because too much waited.")
	peerBatches  = counterFamily("peer_batches_total", "Batches of messages to other nodes.")
	peerMessages = counterFamily("peer_messages_total", "Messages that the batches held.")
	peerUnsent   = counterFamily("peer_unsent_batches_total", "Batches that could not be sent.")
	peerDropped  = counterFamily("peer_answers_dropped_total",
		"Answers to other nodes replaced by \"unknown\" for want of room.")
	peerForeign = counterFamily("peer_foreign_batches_total",
		"Batches of another cluster, for another node, of an ended process, or too large.")
	peerPanics = counterFamily("peer_panics_total",
		"Panics while a message of another node was handled.")
	remoteSent = counterFamily("remoting_sent_batches_total",
		"Batches given to connections to other nodes.")
	remoteReceived = counterFamily("remoting_received_batches_total",
		"Batches that came from other nodes.")
	remoteConnected = counterFamily("remoting_connections_total",
		"Connections made to other nodes.")
	remoteLost = counterFamily("remoting_lost_total",
		"Connections to other nodes that ended.")
	remoteFailed = counterFamily("remoting_failed_total",
		"Attempts to connect to other nodes that came to nothing.")
	remoteRefused = counterFamily("remoting_refused_total",
		"Messages and calls of other processes that are not allowed.")
	remoteHandshakes = counterFamily("remoting_handshakes_refused_total",
		"Connections without a node's certificate, or whose handshake was not finished, and calls beyond "+
			"the bound on connections.")
	remotePanics = counterFamily("remoting_panics_total",
		"Panics survived while messages were taken from connections.")
)

// Who is there, as gossip says, and how well clocks agree. Each node tells its own view,
// so that two sides of a split network differ in it.
var (
	gossipAlive = gaugeFamily("gossip_alive_nodes",
		"Nodes that this one believes to be alive, itself included.")
	gossipLost = counterFamily("gossip_lost_total",
		"How often another node was taken for dead, or has left.")
	versionActive = gaugeFamily("version_active",
		"The cluster's version, as far as this node knows: what came with it is used.")
	versionNewest = gaugeFamily("version_newest",
		"The newest version that this node's build knows; above the active one while an upgrade is not finalised.")
	clockOffset = gaugeFamily("clock_offset_seconds",
		"How far a node's clock is ahead of this one's, on the node that leads meta.", "node")
)

// collectMembers exports who is there, and the clocks. Placement reads the clocks with
// each of its polls, so only the node that leads meta has them. They are absent where
// placement's other figures are: collectPlacement, which runs earlier in the same scrape,
// forgets those once another node leads meta.
func (m exporter) collectMembers(out chan<- prometheus.Metric) {
	send(out, gossipAlive, len(m.peerNodes.Alive())+1) // alive leaves this node out
	send(out, gossipLost, m.peerNodes.Lost())
	send(out, versionActive, uint32(m.status.gate.Agreed().Active))
	send(out, versionNewest, uint32(m.status.gate.Build().Newest))
	// The clocks of the last poll stay as they were when leadership goes; placement's status
	// says whether they still count.
	if _, _, known := m.status.placement.Get(); known {
		for node, offset := range m.status.jobs.clocks.Last() {
			send(out, clockOffset, offset.Seconds(), strconv.FormatUint(node, 10))
		}
	}
}

// collectCluster exports what goes between this node and others. A node that is alone has
// neither peers nor remoting, and exports the snapshots only; where a test has replaced
// the link, remoting alone is missing.
func (m exporter) collectCluster(out chan<- prometheus.Metric) {
	snapshots, r := m.tablets.snapshot.Stats(), m.tablets.replicas.Stats()
	send(out, snapshotSent, snapshots.Sent)
	send(out, snapshotFailed, snapshots.Failed)
	send(out, snapshotBytes, snapshots.Bytes)
	send(out, snapshotInstalled, r.Installed)
	send(out, snapshotRefused, r.Refused)
	send(out, replicasClosed, r.Closed)
	if p := m.peers; p != nil {
		s := p.Stats()
		send(out, peerRequests, s.Requests)
		send(out, peerAnswers, s.Answers)
		send(out, peerLate, s.Late)
		send(out, peerOverloaded, s.Overloaded)
		send(out, peerHandled, s.Handled)
		send(out, peerRefused, s.Refused)
		send(out, peerRaft, s.Raft)
		send(out, peerRaftDropped, s.RaftDropped)
		send(out, peerBatches, s.Batches)
		send(out, peerMessages, s.Messages)
		send(out, peerUnsent, s.Unsent)
		send(out, peerDropped, s.AnswersDropped)
		send(out, peerForeign, s.Foreign)
		send(out, peerPanics, s.Panics)
	}
	if l := m.remote; l != nil {
		s := l.Stats()
		send(out, remoteSent, s.Sent)
		send(out, remoteReceived, s.Received)
		send(out, remoteConnected, s.Connected)
		send(out, remoteLost, s.Lost)
		send(out, remoteFailed, s.Failed)
		send(out, remoteRefused, s.Refused)
		send(out, remoteHandshakes, s.Handshakes)
		send(out, displaced, s.Displaced, "nodes")
		send(out, remotePanics, s.Panics)
	}
}
