package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
)

// A node whose certificate has ended goes on with the connections that it has, and fails whoever
// connects anew. This file says so before it happens, wherever somebody may look; the log is
// certs.Files.Watch's business, which a worker of changes runs.

// errExpired: nobody can connect to the node any more, nor it to others.
var errExpired = errors.New("node: a certificate has expired")

// expiries are when the certificates in use end; none in plain text.
func (n *Node) expiries() []certs.Expiry {
	if n.files == nil {
		return nil
	}
	return n.files.Expiries()
}

// certificateStatus is what a status says of them.
func (n *Node) certificateStatus() (out []*pb.CertificateStatus) {
	for _, e := range n.expiries() {
		out = append(out, &pb.CertificateStatus{File: e.File, ExpiresUnixMs: e.NotAfter.UnixMilli(), Problem: e.Problem(n.now())})
	}
	return out
}

// certificatesExpired is why the node is not ready if a certificate has ended.
func (n *Node) certificatesExpired() error {
	for _, e := range n.expiries() {
		if now := n.now(); e.Expired(now) {
			return fmt.Errorf("%w: %s", errExpired, e.Problem(now))
		}
	}
	return nil
}

// notes are what a probe is told beside whether the node is ready.
func (n *Node) notes() (out []string) {
	for _, c := range n.certificateStatus() {
		if c.Problem != "" {
			out = append(out, c.Problem)
		}
	}
	return out
}

var certExpiry = gaugeFamily("certs_expiry_timestamp_seconds", "When a certificate in use ends, in Unix time.", "file")

func (m metrics) collectCerts(out chan<- prometheus.Metric, status *pb.NodeStatusResponse) {
	for _, c := range status.GetCertificates() {
		at := time.UnixMilli(c.ExpiresUnixMs)
		out <- prometheus.MustNewConstMetric(certExpiry.desc, certExpiry.kind, float64(at.Unix()), c.File)
	}
}
