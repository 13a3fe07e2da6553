package telemetry

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/percolator-go/percolator/actors/tablet/replicas"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	"github.com/percolator-go/percolator/cluster/liveness"
	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/cluster/remoting"
)

// Traffic with other nodes has three layers: snapshots of tablets; the requests and batches
// that carry everything else (peer); the connections under them (remoting). One fault shows in
// several layers: a connection that breaks counts as lost there, and its batches as unsent in
// the layer above.

var snapshotTable = table[snapshot.Stats]{
	counter("snapshot_sent_total", "Snapshots of tablets that another node has installed.",
		func(s snapshot.Stats) uint64 { return s.Sent }),
	counter("snapshot_failed_total", "Snapshots of tablets that could not be sent or installed.",
		func(s snapshot.Stats) uint64 { return s.Failed }),
	counter("snapshot_sent_bytes_total", "Bytes of snapshots sent.",
		func(s snapshot.Stats) uint64 { return s.Bytes }),
}

var replicasTable = table[replicas.Stats]{
	counter("snapshot_installed_total", "Snapshots of tablets that this node has installed.",
		func(s replicas.Stats) uint64 { return s.Installed }),
	counter("snapshot_refused_total", "Pieces of snapshots that this node has refused.",
		func(s replicas.Stats) uint64 { return s.Refused }),
	gauge("replicas_closed", "Replicas that do not run because a snapshot could not be installed.",
		func(s replicas.Stats) int { return s.Closed }),
	gauge("replicas_stale", "Replicas that take no part in their groups because they lack what they have acknowledged.",
		func(s replicas.Stats) int { return s.Stale }),
	counter("replicas_found_stale_total", "Replicas found to lack what they have acknowledged, removed ones included.",
		func(s replicas.Stats) uint64 { return uint64(s.Found) }),
}

var supportTable = table[*liveness.Node]{
	counter("lease_promises_missed_total",
		"Promises of other nodes that ran out while a lease needed them, because the next one came too late.",
		func(n *liveness.Node) uint64 { return n.Missed() }),
}

var peerTable = table[peer.Stats]{
	counter("peer_requests_total", "Requests to other nodes.",
		func(s peer.Stats) uint64 { return s.Requests }),
	counter("peer_answers_total", "Answers that arrived before their deadline.",
		func(s peer.Stats) uint64 { return s.Answers }),
	counter("peer_late_answers_total", "Answers that arrived after their deadline.",
		func(s peer.Stats) uint64 { return s.Late }),
	counter("peer_overloaded_total",
		"Requests to other nodes that failed because too many were in flight.",
		func(s peer.Stats) uint64 { return s.Overloaded }),
	counter("peer_handled_total", "Requests of other nodes that were handled.",
		func(s peer.Stats) uint64 { return s.Handled }),
	counter("peer_refused_total",
		"Requests of other nodes that were refused because too many were in flight.",
		func(s peer.Stats) uint64 { return s.Refused }),
	counter("peer_raft_messages_total", "Raft messages to other nodes.",
		func(s peer.Stats) uint64 { return s.Raft }),
	counter("peer_raft_dropped_total", "Raft messages dropped because the queue was full.",
		func(s peer.Stats) uint64 { return s.RaftDropped }),
	counter("peer_batches_total", "Batches of messages to other nodes.",
		func(s peer.Stats) uint64 { return s.Batches }),
	counter("peer_messages_total", "Messages in the batches to other nodes.",
		func(s peer.Stats) uint64 { return s.Messages }),
	counter("peer_unsent_batches_total", "Batches that could not be sent.",
		func(s peer.Stats) uint64 { return s.Unsent }),
	counter("peer_answers_dropped_total",
		"Answers to other nodes that were replaced by \"unknown\" because the queue was full.",
		func(s peer.Stats) uint64 { return s.AnswersDropped }),
	counter("peer_foreign_batches_total",
		"Batches of another cluster, for another node, of an ended process, or too large.",
		func(s peer.Stats) uint64 { return s.Foreign }),
	counter("peer_panics_total", "Panics while a message of another node was handled.",
		func(s peer.Stats) uint64 { return s.Panics }),
}

var remotingTable = table[remoting.Stats]{
	counter("remoting_sent_batches_total", "Batches written to connections to other nodes.",
		func(s remoting.Stats) uint64 { return s.Sent }),
	counter("remoting_received_batches_total", "Batches received from other nodes.",
		func(s remoting.Stats) uint64 { return s.Received }),
	counter("remoting_connections_total", "Connections made to other nodes.",
		func(s remoting.Stats) uint64 { return s.Connected }),
	counter("remoting_lost_total", "Connections to other nodes that ended.",
		func(s remoting.Stats) uint64 { return s.Lost }),
	counter("remoting_failed_total", "Failed attempts to connect to other nodes.",
		func(s remoting.Stats) uint64 { return s.Failed }),
	counter("remoting_refused_total", "Messages and calls of other processes that are not allowed.",
		func(s remoting.Stats) uint64 { return s.Refused }),
	counter("remoting_handshakes_refused_total",
		"Connections refused: without a node's certificate, with an unfinished handshake, or beyond the limit.",
		func(s remoting.Stats) uint64 { return s.Handshakes }),
	counter("remoting_panics_total", "Panics survived while messages were read from connections.",
		func(s remoting.Stats) uint64 { return s.Panics }),
}

// displaced counts the idle connections that the limit of each listener has closed.
var displaced = counter("connections_displaced_total",
	"Idle connections closed because too many were open.", the[uint64], "listener")

// Members and clocks. Each node exports its own view, so that two sides of a split network
// differ.
var memberTable = table[*Exporter]{
	gauge("gossip_alive_nodes", "Nodes that this one believes alive, including itself.",
		func(e *Exporter) int { return len(e.Peers.Alive()) + 1 }),
	counter("gossip_lost_total", "Times that another node was taken for dead or has left.",
		func(e *Exporter) uint64 { return e.Peers.Lost() }),
	gauge("version_active", "Active version of the cluster, as this node knows it.",
		func(e *Exporter) uint32 { return uint32(e.Gate.Agreed().Active) }),
	gauge("version_newest",
		"Newest version of this node's build; above the active one until an upgrade is finalized.",
		func(e *Exporter) uint32 { return uint32(e.Gate.Build().Newest) }),
}

var clockOffset = gauge("clock_offset_seconds",
	"How far a node's clock is ahead of this one's. Only the node that leads meta exports it.",
	time.Duration.Seconds, "node")

// collectMembers exports the members and the clocks. Placement measures the clocks with each
// of its polls. They are exported only with placement's figures, which collectPlacement, earlier in
// the same scrape, forgets once another node leads meta.
func (e *Exporter) collectMembers(out chan<- prometheus.Metric) {
	memberTable.send(out, e)
	if _, _, known := e.placement.Get(); known {
		for node, offset := range e.Jobs.Offsets() {
			clockOffset(out, offset, strconv.FormatUint(node, 10))
		}
	}
}

// collectCluster exports the traffic between this node and others. A node that runs alone
// exports snapshots, replicas and promises only; if a test has replaced the link, remoting is
// missing.
func (e *Exporter) collectCluster(out chan<- prometheus.Metric) {
	snapshotTable.send(out, e.Tablets.Snapshots.Stats())
	replicasTable.send(out, e.Tablets.Replicas.Stats())
	supportTable.send(out, e.Liveness)
	if e.Link != nil {
		peerTable.send(out, e.Link.Stats())
	}
	if e.Remoting != nil {
		s := e.Remoting.Stats()
		remotingTable.send(out, s)
		displaced(out, s.Displaced, "nodes")
	}
}
