package certs

import (
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

// checkEvery is how often files are looked at for changes, at most, and only while somebody
// asks what they hold.
const checkEvery = time.Second

// Files are one identity's files as they are now: each handshake uses what was on disk a
// second ago, or the last that was sound. All methods may be used concurrently.
type Files struct {
	source Source
	logger *slog.Logger

	current atomic.Pointer[loaded]

	mu      sync.Mutex // whoever looks at the files
	stamps  [4]stamp
	checked time.Time
	failing bool // the last change was unsound, and that has been logged

	fault atomic.Pointer[string] // why it was; nil: it was not
}

// stamp tells a file's versions apart.
type stamp struct {
	modified time.Time
	size     int64
}

// Open loads the files. Wrong, missing or expired ones are an error that says which, and
// what to do.
func Open(source Source, logger *slog.Logger) (*Files, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	f := &Files{source: source, logger: logger, checked: time.Now()}
	f.stamps = f.stat()
	first, err := source.load(time.Now())
	if err != nil {
		return nil, err
	}
	f.current.Store(first)
	return f, nil
}

// Server is the configuration of a listener that serves holders of one of the roles, and
// nobody else.
func (f *Files) Server(accept ...Role) *tls.Config {
	return f.server(tls.RequireAndVerifyClientCert, accept, true)
}

// Clients is like Server, but holders of revoked certificates may connect too: TLS cannot tell them why
// they are refused. Whoever serves by it asks Revoked with each call, and says so.
func (f *Files) Clients(accept ...Role) *tls.Config {
	return f.server(tls.RequireAndVerifyClientCert, accept, false)
}

// Browsers is the configuration of a listener that serves everybody. Who shows a
// certificate has to hold one of the roles. Whoever serves by it asks Revoked before a certificate
// counts for anything.
func (f *Files) Browsers(accept ...Role) *tls.Config {
	return f.server(tls.VerifyClientCertIfGiven, accept, false)
}

// server returns the configuration of a listener. With refuse it refuses revoked certificates.
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

// Client is the configuration of the next connection to a server that is known by a name,
// which its certificate has to hold. Ask for each connection anew: the authority in it is
// that of now.
func (f *Files) Client() *tls.Config {
	cfg := f.base()
	now := f.now()
	cfg.RootCAs, cfg.GetClientCertificate = now.roots, f.ownCertificate
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		return now.revoked.check(state.PeerCertificates[0])
	}
	return cfg
}

// Peer is the configuration of connections to nodes, under whatever address they are
// reached: a node's certificate of the authority is what counts.
func (f *Files) Peer() *tls.Config {
	cfg := f.base()
	cfg.GetClientCertificate = f.ownCertificate
	// The library would check against a name, and an authority that was fixed now.
	// VerifyConnection does the rest of what it would do.
	cfg.InsecureSkipVerify = true
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return fmt.Errorf("%w: the server has shown no certificate", ErrRole)
		}
		now := f.now()
		opts := x509.VerifyOptions{
			Roots: now.roots, Intermediates: x509.NewCertPool(),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		for _, c := range state.PeerCertificates[1:] {
			opts.Intermediates.AddCert(c)
		}
		if _, err := state.PeerCertificates[0].Verify(opts); err != nil {
			return err
		}
		if err := checkRole(state.PeerCertificates[0], []Role{Node}); err != nil {
			return err
		}
		return now.revoked.check(state.PeerCertificates[0])
	}
	return cfg
}

// ownCertificate is what is shown to a server; nothing if there is none, and the server decides.
func (f *Files) ownCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if pair := f.now().pair; pair != nil {
		return pair, nil
	}
	return &tls.Certificate{}, nil
}

// Names are the hosts' names in the certificate; none if there is no certificate.
func (f *Files) Names() []string {
	if pair := f.now().pair; pair != nil && pair.Leaf != nil {
		return pair.Leaf.DNSNames
	}
	return nil
}

// MissingHost returns, for the log, what is wrong if the own certificate is not good for a host by
// which the node is reached, and the command that makes one that is. Both are empty if it is
// good, or if there is none.
func (f *Files) MissingHost(host string) (problem, next string) {
	pair := f.now().pair
	if pair == nil || pair.Leaf == nil {
		return "", ""
	}
	if pair.Leaf.VerifyHostname(host) == nil {
		return "", ""
	}
	has := hosts(pair.Leaf)
	problem = fmt.Sprintf("%s is for %s, not for %s, at which this node is reached: clients, and nodes "+
		"that join, refuse it there", filepath.Base(f.source.Cert), listHosts(has), host)
	_, name := Identity(pair.Leaf)
	next = "percolator cert create-node " + name
	for _, h := range append(has, host) {
		next += " --host " + h
	}
	return problem, next + " --ca-dir DIR --certs " + filepath.Dir(f.source.Cert) + " --force"
}

// Unusable returns why the files as they are now are not used, and those of before still are; empty if
// they are used.
func (f *Files) Unusable() string {
	f.now()
	if why := f.fault.Load(); why != nil {
		return *why
	}
	return ""
}

// Authorities returns by which authority the own certificate is signed, and those whose certificates
// are accepted, by the first bytes of their keys' identifiers. issuer is empty if there is no
// certificate, or it does not say.
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

// Roleless returns the name in the client's certificate beside the own one if it is of before
// there were roles; else, and if there is none, file is empty.
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

// base has no session tickets: a session that is resumed would outlive the certificate
// that began it.
func (f *Files) base() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true}
}

// now is what the files hold. They are looked at once a second, by one caller, for whom others
// do not wait: all that nodes say to each other comes by here, and a disk may hang.
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
		// Perhaps the key has been written and the certificate not yet: the next look will tell.
		if !f.failing {
			f.logger.LogAttrs(context.Background(), slog.LevelWarn,
				"changed certificates are not used", slog.Any("error", err))
		}
		f.failing = true
		why := err.Error()
		f.fault.Store(&why)
		return f.current.Load()
	}
	f.fault.Store(nil)
	f.current.Store(next)
	f.stamps, f.failing = stamps, false
	f.logger.Info("certificates loaded anew", "certificate", f.source.Cert)
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
