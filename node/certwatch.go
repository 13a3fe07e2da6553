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

// certificates reports problems of the certificates that this node uses. A node with an expired
// certificate keeps its connections but fails new ones, so status and readiness report the problem
// in advance. It owns nothing and is safe for concurrent use; certs.Files.Watch, a goroutine of the
// node's background, logs.
type certificates struct {
	files   *certs.Files // nil: plain text
	now     func() time.Time
	clients *rpc.LegacyCerts // certificates without a role, as seen by the server for clients
	host    func() string    // the node's host for others; empty: unknown or none
}

// errExpired reports that new connections to and from the node fail.
var errExpired = errors.New("node: a certificate has expired")

// expiries returns when the certificates in use expire; none in plain text.
func (c certificates) expiries() []certs.Expiry {
	if c.files == nil {
		return nil
	}
	return c.files.Expiries()
}

// status returns the certificates for the node's status.
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
		problems = append(problems, "the changed files were rejected, and a restart will fail: "+why)
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

// revoked returns this node's revocation list for doctor, which reports nodes whose lists differ;
// nil in plain text.
func (c certificates) revoked() *pb.RevokedStatus {
	if c.files == nil {
		return nil
	}
	count, digest := c.files.RevokedList()
	return &pb.RevokedStatus{Count: uint32(count), Digest: digest}
}

// roleless returns the known client certificates without a role: those that called the node within
// a day, and the one next to its own files. They predate roles and have an operator's permissions,
// so doctor reports them until they are replaced.
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
	// One expired certificate makes the node unready; the problem names its file.
	for _, e := range c.expiries() {
		if now := c.now(); e.Expired(now) {
			return fmt.Errorf("%w: %s", errExpired, e.Problem(now))
		}
	}
	return nil
}

// notes returns the certificates' problems for probes, even if the node is ready.
func (c certificates) notes() (out []string) {
	for _, s := range c.status() {
		if s.Problem != "" {
			out = append(out, s.Problem)
		}
	}
	return out
}
