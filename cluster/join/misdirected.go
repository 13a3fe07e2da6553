package join

import (
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/percolator-go/percolator/internal/rpc"
)

// Diagnosis of a node that waits to join, on the goroutine of Enter, and the operator's remedy
// where waiting cannot help.

// misdirected returns why Hello failed at an address, and the remedy; next is empty if a node may
// still start there.
func misdirected(failure error) (why, next string) {
	st := status.Convert(failure)
	_, code := rpc.Diagnose(st.Message())
	if st.Code() == codes.Unimplemented {
		code = rpc.ErrOtherService
	}
	if code == nil {
		return "", ""
	}
	why = code.Error()
	switch {
	case errors.Is(code, rpc.ErrOtherService):
		return why, "--join takes a node's --listen address, one port below its peer port"
	case errors.Is(code, rpc.ErrHTTP1):
		return why, "--join takes a node's --listen address, not that of its console, three ports above it unless --http is set"
	case errors.Is(code, rpc.ErrPlainText):
		return why, "start this node with --insecure as those that it joins, or check that --join is a --listen address"
	case errors.Is(code, rpc.ErrWantsTLS):
		return why, "start this node with --certs as those that it joins, or check that --join is a --listen address"
	case errors.Is(code, rpc.ErrWrongHost):
		return why, "name that node by a host of its certificate, or recreate the certificate: " +
			"`percolator cert create-node NAME --host HOST --ca-dir DIR --certs DIR --force`"
	case errors.Is(code, rpc.ErrCertificates), errors.Is(code, rpc.ErrRefusedCert):
		return "it and this node do not accept each other's certificates", "all nodes need certificates of one authority: `percolator cert create-node NAME --host HOST " +
			"--ca-dir DIR --certs DIR`, with the --ca-dir that made those of the cluster"
	}
	return why, ""
}

// logMisdirected logs a warning for each address at which no node can respond to this one.
func (d *Membership) logMisdirected(all []helloResult) {
	for _, g := range all {
		if g.err == nil {
			continue
		}
		if why, next := misdirected(g.err); next != "" {
			d.warn("waiting to join: no node responds at an address", g.addr, "addr", g.addr,
				"why", why, "next", next, "error", g.err)
		}
	}
}

// loneAfter is the time after which nodes that wait for each other are reported: a node that
// is founding a cluster still responds as fresh for a moment.
const loneAfter = 5 * time.Second

// logWaiting logs why there is no cluster to join. It omits addresses reported by logMisdirected.
func (d *Membership) logWaiting(all []helloResult) {
	var fresh, silent []string
	var why error
	own, founding, wrong := d.cfg.Self.Identity().NodeID, false, 0
	for _, g := range all {
		switch {
		case g.r == nil:
			if _, next := misdirected(g.err); next != "" {
				wrong++
				continue
			}
			silent, why = append(silent, g.addr), g.err
		case g.r.NodeId != own:
			fresh = append(fresh, g.addr)
			founding = founding || g.r.Expect > 1
		}
	}
	// The nodes are alone with each other while at least one other node responds, no address is
	// silent, and none of these nodes expects to found a cluster.
	if len(fresh) == 0 || len(silent) > 0 || founding {
		d.loneSince = time.Time{}
	} else if d.loneSince.IsZero() {
		d.loneSince = time.Now()
	}
	switch {
	case !d.loneSince.IsZero() && time.Since(d.loneSince) >= loneAfter:
		d.warn("waiting to join a cluster: all responding nodes wait too, and none founds one", "",
			"at", strings.Join(fresh, ","), "next", "give all of them --bootstrap-expect N, the number of nodes "+
				"that found the cluster; or start the first one without --join, in an empty directory")
	case len(fresh)+len(silent)+wrong == 0:
		d.say("waiting to join, but --join names only this node; start the first node of a cluster " +
			"without --join, or all of them with --bootstrap-expect")
	case len(fresh)+len(silent) > 0:
		var args []any
		if len(silent) > 0 {
			args = append(args, "no_answer", strings.Join(silent, ","), "error", why)
		}
		if len(fresh) > 0 {
			args = append(args, "in_no_cluster_yet", strings.Join(fresh, ","))
		}
		d.say("waiting to join a cluster", args...)
	}
}
