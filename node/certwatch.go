package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/rpc"
)

// certificates are those that this node uses. One whose certificate has ended goes on
// with the connections that it has, and fails whoever connects anew: this says so before
// it happens, wherever somebody may look, on any goroutine. It owns nothing; the log is
// certs.Files.Watch's business, a goroutine of the node's background.
type certificates struct {
	files   *certs.Files // nil: plain text
	now     func() time.Time
	clients *rpc.LegacyCerts // of the server for clients
	host    func() string    // by which others reach the node; empty: not known yet, or there is none
}

// errExpired reports that nobody can connect to the node any more, nor it to others.
var errExpired = errors.New("node: a certificate has expired")

// expiries returns when the certificates in use expire; none in plain text.
func (c certificates) expiries() []certs.Expiry {
	if c.files == nil {
		return nil
	}
	return c.files.Expiries()
}

// status returns what a node's status says of the certificates.
func (c certificates) status() (out []*pb.CertificateStatus) {
	for _, e := range c.expiries() {
		out = append(out, &pb.CertificateStatus{
			File: e.File, ExpiresUnixMs: e.NotAfter.UnixMilli(), Problem: e.Problem(c.now()),
			Critical: e.Expired(c.now()),
		})
	}
	if len(out) == 0 {
		return nil
	}
	own := out[0]
	own.Issuer, own.Trusted = c.files.Authorities()
	problems := []string{own.Problem}
	if why := c.files.Unusable(); why != "" {
		problems = append(problems, "the changed files are not used, and a restart will fail: "+why)
	}
	if host := c.host(); host != "" {
		if problem, next := c.files.MissingHost(host); problem != "" {
			problems = append(problems, problem+": `"+next+"`")
		}
	}
	problems = slices.DeleteFunc(problems, func(p string) bool { return p == "" })
	own.Critical = own.Critical || len(problems) > 1 || own.Problem == "" && len(problems) == 1
	own.Problem = strings.Join(problems, "; ")
	return out
}

// revoked returns what is revoked as far as this node knows, so that doctor finds nodes that the
// list was not copied to; nil in plain text.
func (c certificates) revoked() *pb.RevokedStatus {
	if c.files == nil {
		return nil
	}
	count, digest := c.files.RevokedList()
	return &pb.RevokedStatus{Count: uint32(count), Digest: digest}
}

// roleless returns the certificates of clients that carry no role, as far as the node knows:
// those that have called it within a day, and the one beside its own files. They are of
// before there were roles and count as an operator's, which is more than their holders
// should have, so doctor names them until they are replaced.
func (c certificates) roleless() (out []*pb.RolelessCertificate) {
	if c.files == nil {
		return nil
	}
	for _, used := range c.clients.Clients(time.Now()) {
		out = append(out, &pb.RolelessCertificate{Name: used.Name, SeenUnixMs: used.Seen.UnixMilli()})
	}
	if file, name := c.files.Roleless(); file != "" {
		out = append(out, &pb.RolelessCertificate{Name: name, File: file})
	}
	return out
}

// expired returns an error, for readiness, if a certificate has expired.
func (c certificates) expired() error {
	// One is enough to be unready; the problem names its file.
	for _, e := range c.expiries() {
		if now := c.now(); e.Expired(now) {
			return fmt.Errorf("%w: %s", errExpired, e.Problem(now))
		}
	}
	return nil
}

// notes returns the certificates' problems, which a probe is told even if the node is
// ready.
func (c certificates) notes() (out []string) {
	for _, s := range c.status() {
		if s.Problem != "" {
			out = append(out, s.Problem)
		}
	}
	return out
}
