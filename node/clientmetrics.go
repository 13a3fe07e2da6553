package node

import (
	"cmp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/exposition"
)

// Remote clients that this node serves. They coordinate their transactions themselves, so
// the node sees single operations on tablets, not transactions. The figures are atomic
// counters of the server for clients (package rpc), which its workers add to; reading
// them takes no lock that a request waits for. An operation is timed from when a worker
// takes it until its answer is queued: neither the wait for a worker nor the network is
// in it.
var (
	clientConnections = gaugeFamily("client_connections",
		"Connections to the address for clients, other nodes' included.")
	clientAccepted = counterFamily("client_connections_total", "Connections accepted.")
	clientUnread   = counterFamily("client_unread_total",
		"Connections closed because their client did not read its answers.")
	displaced = counterFamily("connections_displaced_total",
		"Connections on which nothing was asked that were closed because too many were open.", "listener")
	clientRateRefused = counterFamily("client_rate_refused_total",
		"Operations of remote clients that client-rate or client-table-rate has refused.")
	clientOperation = histogramFamily("client_operation_seconds",
		"Time that this node took for an operation of a remote client.", "operation")
	clientErrors = counterFamily("client_errors_total",
		"Operations of remote clients that were answered by an error: "+
			"refused, to be tried again elsewhere, or failed.", "code")
)

// collectClients exports what the server for remote clients counts. A node without an
// address for clients has no server, and none of these series.
func (m exporter) collectClients(out chan<- prometheus.Metric) {
	if m.servers.http != nil {
		send(out, displaced, m.servers.http.Displaced(), "http")
	}
	if m.servers.grpc == nil {
		return
	}
	s := m.servers.grpc.Stats()
	send(out, clientConnections, s.Connections)
	send(out, clientAccepted, s.Accepted)
	send(out, clientUnread, s.Unread)
	send(out, displaced, s.Displaced, "clients")
	send(out, clientRateRefused, s.RateRefused)
	// An operation has a series from its first use on. One that this build does not know
	// has no name.
	for name, took := range s.Operations {
		exposition.SendHistogram(out, clientOperation, took, cmp.Or(name, "unknown"))
	}
	// This code is sent even at 0, because an alert sees no increase in a series that
	// begins with its first event.
	s.Errors[pb.Error_CODE_OVERLOADED] += 0
	for code, n := range s.Errors {
		label := strings.ToLower(strings.TrimPrefix(code.String(), "CODE_"))
		send(out, clientErrors, n, label)
	}
}
