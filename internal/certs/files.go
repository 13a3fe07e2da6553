package certs

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// checkEvery is the minimum interval between checks of the files for changes. They are checked only
// on use.
const checkEvery = time.Second

// Files are the current files of one identity: each handshake uses the contents of at most 1 s ago,
// or the last valid ones. All methods may be used concurrently.
type Files struct {
	source Source
	logger *slog.Logger

	current atomic.Pointer[loaded]

	mu      sync.Mutex // held while the files are checked
	stamps  [4]stamp
	checked time.Time
	failing bool // the last change of the files was invalid, and that has been logged

	fault atomic.Pointer[string] // why the last change was invalid; nil: it was valid
}

// stamp identifies a version of a file.
type stamp struct {
	modified time.Time
	size     int64
}

// Open loads the files. If one is invalid, missing or expired it returns an error that names the file
// and a remedy. ca.crl may be missing.
func Open(source Source, logger *slog.Logger) (*Files, error) {
	logger = cmp.Or(logger, slog.New(slog.DiscardHandler))
	f := &Files{source: source, logger: logger, checked: time.Now()}
	f.stamps = f.stat()
	first, err := source.load(time.Now())
	if err != nil {
		return nil, err
	}
	f.current.Store(first)
	return f, nil
}

// Server returns the configuration of a listener that accepts only holders of one of the roles.
func (f *Files) Server(accept ...Role) *tls.Config {
	return f.server(tls.RequireAndVerifyClientCert, accept, true)
}

// Clients returns the configuration of a listener that accepts only holders of one of the roles, also
// of a revoked certificate, because TLS cannot report that reason to the client. The caller must check
// Revoked on each call and report it.
func (f *Files) Clients(accept ...Role) *tls.Config {
	return f.server(tls.RequireAndVerifyClientCert, accept, false)
}

// Browsers returns the configuration of a listener that accepts clients without a certificate. A
// certificate that a client presents must have one of the roles. The caller must check Revoked before
// it relies on the certificate.
func (f *Files) Browsers(accept ...Role) *tls.Config {
	return f.server(tls.VerifyClientCertIfGiven, accept, false)
}

// server returns the configuration of a listener. With refuse it rejects revoked certificates.
func (f *Files) server(clients tls.ClientAuthType, accept []Role, refuse bool) *tls.Config {
	base := f.base()
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := f.now()
		if now.pair == nil {
			return nil, fmt.Errorf("%w: a server needs a certificate", ErrFiles)
		}
		cfg := f.base()
		cfg.Certificates = []tls.Certificate{*now.pair}
		cfg.ClientAuth, cfg.ClientCAs = clients, now.roots
		cfg.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 && clients == tls.VerifyClientCertIfGiven {
				return nil
			}
			if err := checkRole(state.PeerCertificates[0], accept); err != nil || !refuse {
				return err
			}
			return now.revoked.check(state.PeerCertificates[0])
		}
		return cfg, nil
	}
	return base
}

// Client returns the configuration for one connection to a server, whose certificate must contain the
// server's name. Call it for each connection, because the configuration contains the current
// authority.
func (f *Files) Client() *tls.Config {
	cfg := f.base()
	now := f.now()
	cfg.RootCAs, cfg.GetClientCertificate = now.roots, f.ownCertificate
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		return now.revoked.check(state.PeerCertificates[0])
	}
	return cfg
}

// Peer returns the configuration of connections to nodes. It accepts any node's certificate of the
// authority, whatever the address, and refuses others with a *tls.CertificateVerificationError.
func (f *Files) Peer() *tls.Config {
	cfg := f.base()
	cfg.GetClientCertificate = f.ownCertificate
	// The library would check the host name, and would use the present authority for all later
	// connections. VerifyConnection performs the other checks in its place.
	cfg.InsecureSkipVerify = true
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return fmt.Errorf("%w: the server presented no certificate", ErrRole)
		}
		if err := f.checkNode(state.PeerCertificates); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
		}
		return nil
	}
	return cfg
}

// checkNode refuses all but a node's certificate of the authority.
func (f *Files) checkNode(chain []*x509.Certificate) error {
	now := f.now()
	opts := x509.VerifyOptions{
		Roots: now.roots, Intermediates: x509.NewCertPool(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(opts); err != nil {
		return err
	}
	if err := checkRole(chain[0], []Role{Node}); err != nil {
		return err
	}
	return now.revoked.check(chain[0])
}

// ownCertificate returns the certificate to present to a server, or an empty one without an own
// certificate: then the server decides.
func (f *Files) ownCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if pair := f.now().pair; pair != nil {
		return pair, nil
	}
	return &tls.Certificate{}, nil
}

// Names returns the host names in the certificate; none without a certificate.
func (f *Files) Names() []string {
	if pair := f.now().pair; pair != nil && pair.Leaf != nil {
		return pair.Leaf.DNSNames
	}
	return nil
}

// MissingHost returns, for the log, a description of the problem if the own certificate does not
// cover the host, and the command that creates one that does. Both are empty if the certificate covers
// it, or if there is none.
func (f *Files) MissingHost(host string) (problem, next string) {
	pair := f.now().pair
	if pair == nil || pair.Leaf == nil {
		return "", ""
	}
	if pair.Leaf.VerifyHostname(host) == nil {
		return "", ""
	}
	has := hosts(pair.Leaf)
	problem = fmt.Sprintf("%s is for %s, not for %s, the announced address of this node: clients, and nodes "+
		"that join, will reject it", filepath.Base(f.source.Cert), listHosts(has), host)
	_, name := Identity(pair.Leaf)
	next = "percolator cert create-node " + name
	for _, h := range append(has, host) {
		next += " --host " + h
	}
	return problem, next + " --ca-dir DIR --certs " + filepath.Dir(f.source.Cert) + " --force"
}

// Unusable returns why the current files are invalid, so that the previous ones are still in use, or
// "" if they are in use.
func (f *Files) Unusable() string {
	f.now()
	if why := f.fault.Load(); why != nil {
		return *why
	}
	return ""
}

// Authorities returns the issuer of the own certificate and the accepted authorities, each by the
// first bytes of its key's identifier. issuer is empty without a certificate, or if that does not
// contain it.
func (f *Files) Authorities() (issuer string, trusted []string) {
	now := f.now()
	for _, c := range now.authorities {
		trusted = append(trusted, shortKey(c.SubjectKeyId))
	}
	if now.pair != nil && now.pair.Leaf != nil && len(now.pair.Leaf.AuthorityKeyId) > 0 {
		issuer = shortKey(now.pair.Leaf.AuthorityKeyId)
	}
	return issuer, trusted
}

// listHosts joins hosts for a message.
func listHosts(hosts []string) string {
	if len(hosts) == 0 {
		return "no host"
	}
	return strings.Join(hosts, ", ")
}

// Roleless examines the file client.crt in the folder of f. If its certificate has the role Client,
// as early builds issued them, it returns the file's name and the certificate's. Otherwise file is
// empty.
func (f *Files) Roleless() (file, name string) {
	found, err := readCerts(filepath.Join(filepath.Dir(f.source.Cert), ClientCert))
	if err != nil {
		return "", ""
	}
	role, name := Identity(found[0])
	if role != Client {
		return "", ""
	}
	return ClientCert, name
}

// base returns the common configuration. It disables session tickets, because a resumed session would
// outlive the certificate with which it began.
func (f *Files) base() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true}
}

// now returns the current contents of the files. At most once in checkEvery one caller checks the
// files; others do not wait for it, because every connection calls now and a disk may hang.
func (f *Files) now() *loaded {
	if !f.mu.TryLock() {
		return f.current.Load()
	}
	defer f.mu.Unlock()
	if time.Since(f.checked) < checkEvery {
		return f.current.Load()
	}
	f.checked = time.Now()
	stamps := f.stat()
	if stamps == f.stamps && !f.failing {
		return f.current.Load()
	}
	next, err := f.source.load(time.Now())
	if err != nil {
		// The key may have been written and the certificate not yet: the next check decides.
		if !f.failing {
			f.logger.LogAttrs(context.Background(), slog.LevelWarn,
				"cannot use the changed certificates; the previous ones stay in use", slog.Any("error", err))
		}
		f.failing = true
		why := err.Error()
		f.fault.Store(&why)
		return f.current.Load()
	}
	f.fault.Store(nil)
	f.current.Store(next)
	f.stamps, f.failing = stamps, false
	f.logger.Info("reloaded certificates", "certificate", f.source.Cert)
	if text, expired := problems(next.expiries(f.source), time.Now()); text != "" {
		f.warn(text, expired)
	}
	return f.current.Load()
}

func (f *Files) stat() (stamps [4]stamp) {
	for i, path := range []string{
		f.source.CA, f.source.Cert, f.source.Key, f.source.revokedPath(),
	} {
		if info, err := os.Stat(path); path != "" && err == nil {
			stamps[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return stamps
}
