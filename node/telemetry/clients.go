package telemetry

import (
	"cmp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/gateway"
	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/rpc"
)

// Remote clients of this node. They coordinate their transactions themselves, so the node sees
// operations on tablets rather than transactions. An operation is timed from when a worker
// takes it until its answer is queued; waiting for a worker and the network are not included.
var clientTable = table[rpc.ServerStats]{
	gauge("client_connections",
		"Connections to the address for clients, including other nodes', and to the gateway.",
		func(s rpc.ServerStats) int64 { return s.Connections }),
	counter("client_connections_total", "Connections accepted.",
		func(s rpc.ServerStats) uint64 { return s.Accepted }),
	counter("client_unread_total", "Connections closed because the client did not read its answers.",
		func(s rpc.ServerStats) uint64 { return s.Unread }),
	counter("client_rate_refused_total",
		"Operations of remote clients refused by client-rate or client-table-rate.",
		func(s rpc.ServerStats) uint64 { return s.RateRefused }),
}

var (
	clientOperation = histogram("client_operation_seconds",
		"Time of an operation of a remote client on this node.", the[metrics.Histogram], "operation")
	clientErrors = counter("client_errors_total",
		"Operations of remote clients answered by an error, but not those refused by a rate.",
		the[uint64], "code")
)

// The gateway. Its callers' operations count as those of remote clients too.
var (
	gatewayTable = table[gateway.Stats]{
		gauge("gateway_calls", "Calls and streams of the gateway that are running.",
			func(s gateway.Stats) int { return s.Calls }),
		gauge("gateway_clients", "Clients of the gateway with a coordinator on this node.",
			func(s gateway.Stats) int { return s.Clients }),
		gauge("gateway_sessions", "Interactive transactions and snapshots of the gateway's clients.",
			func(s gateway.Stats) int { return s.Sessions }),
		gauge("gateway_watches", "Streams of changes to the gateway's clients.",
			func(s gateway.Stats) int64 { return s.Watches }),
		counter("gateway_sessions_expired_total", "Sessions that ended because no call used them during their lease.",
			func(s gateway.Stats) uint64 { return s.Expired }),
	}
	gatewayAnswers = counter("gateway_calls_total", "Calls and streams of the gateway that have ended, by code.",
		the[uint64], "code")
)

// collectGateway exports the figures of the gateway, if there is one.
func (e *Exporter) collectGateway(out chan<- prometheus.Metric) {
	g := e.Gateway()
	if g == nil {
		return
	}
	s := g.Stats()
	gatewayTable.send(out, s)
	for code, n := range s.Answered {
		gatewayAnswers(out, n, code)
	}
}

// collectClients exports the connections displaced at HTTP's listener, and the figures of the
// gateway and of the server for remote clients, as far as they run.
func (e *Exporter) collectClients(out chan<- prometheus.Metric) {
	if h := e.HTTP(); h != nil {
		displaced(out, h.Displaced(), "http")
	}
	e.collectGateway(out)
	server := e.Server()
	if server == nil {
		return
	}
	s := server.Stats()
	clientTable.send(out, s)
	displaced(out, s.Displaced, "clients")
	// An operation has a series from its first use on. One that this build does not know has no
	// name.
	for name, took := range s.Operations {
		clientOperation(out, took, cmp.Or(name, "unknown"))
	}
	// This code is exported even at 0, because an alert sees no increase in a series that begins
	// with its first event.
	s.Errors[pb.Error_CODE_OVERLOADED] += 0
	for code, n := range s.Errors {
		clientErrors(out, n, strings.ToLower(strings.TrimPrefix(code.String(), "CODE_")))
	}
}
