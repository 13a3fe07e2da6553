package certs

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Names of the files in a folder of certificates.
const (
	CACert     = "ca.crt"
	CAKey      = "ca.key"
	NodeCert   = "node.crt"
	NodeKey    = "node.key"
	ClientCert = "client.crt"
	ClientKey  = "client.key"
	GossipKeys = "gossip.keys"
)

// Default validity. Replacing an authority is expensive, because every node and client has a copy.
const (
	CALifetime   = 10 * 365 * 24 * time.Hour
	LeafLifetime = 365 * 24 * time.Hour
	// backdate is the age of a new certificate, because the clocks of a cluster differ slightly.
	backdate = 5 * time.Minute
)

// Request describes a certificate to create.
type Request struct {
	Dir string // destination folder, created if missing
	// CA is the folder with ca.crt and ca.key; empty means Dir. The cluster's other shared files
	// are copied from it.
	CA       string
	Name     string        // shown in logs and refusals
	Hosts    []string      // DNS names and IP addresses of the node
	Role     Role          // for CreateClient: one of ClientRoles; empty: Writer
	Lifetime time.Duration // validity; 0: CALifetime or LeafLifetime
	Force    bool          // overwrite existing files
	Now      time.Time     // zero: the current time
}

// Created lists the written files, in order.
type Created struct {
	Files    []string
	NotAfter time.Time
}

// CreateCA creates an authority and the first gossip key.
func CreateCA(r Request) (Created, error) {
	r = r.withDefaults(CALifetime)
	r.Name = cmp.Or(r.Name, "percolator")
	key, template, err := r.template(r.Name, nil)
	if err != nil {
		return Created{}, err
	}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign
	files, err := pair(template, template, key, key, CACert, CAKey)
	if err != nil {
		return Created{}, err
	}
	files = append(files, file{GossipKeys, formatGossipKeys([][]byte{newGossipKey()}, ""), keyMode})
	return r.write(files, template.NotAfter)
}

// CreateNode creates a node's certificate. Afterwards Dir contains all files that a node needs.
func CreateNode(r Request) (Created, error) {
	if len(r.Hosts) == 0 {
		return Created{}, fmt.Errorf("%w: a node's certificate needs at least one host", ErrFiles)
	}
	return r.sign(Node, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NodeCert, NodeKey)
}

// CreateClient creates a client's certificate. Afterwards Dir contains all files that a client needs.
func CreateClient(r Request) (Created, error) {
	r.Role = cmp.Or(r.Role, Writer)
	if !slices.Contains(ClientRoles(), r.Role) {
		return Created{}, fmt.Errorf("%w: a client cannot have the role %q: use %s", ErrRole, r.Role,
			list(ClientRoles()))
	}
	return r.sign(r.Role, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, ClientCert, ClientKey)
}

func (r Request) withDefaults(lifetime time.Duration) Request {
	if r.Lifetime <= 0 {
		r.Lifetime = lifetime
	}
	if r.Now.IsZero() {
		r.Now = time.Now()
	}
	r.CA = cmp.Or(r.CA, r.Dir)
	return r
}

// sign creates a certificate signed by the authority in r.CA.
func (r Request) sign(role Role, usage []x509.ExtKeyUsage, certName,
	keyName string) (Created, error) {
	r = r.withDefaults(LeafLifetime)
	if r.Name == "" || strings.ContainsAny(r.Name, "/?#% \t\n") {
		return Created{}, fmt.Errorf("%w: invalid name %q: it must not be empty or contain blanks or / ? # %%",
			ErrFiles, r.Name)
	}
	ca, signer, err := loadCA(r.CA, r.Now)
	if err != nil {
		return Created{}, err
	}
	key, template, err := r.template(r.Name, identity(role, r.Name))
	if err != nil {
		return Created{}, err
	}
	template.ExtKeyUsage, template.KeyUsage = usage, x509.KeyUsageDigitalSignature
	if template.NotAfter.After(ca.NotAfter) {
		template.NotAfter = ca.NotAfter // a certificate is never valid longer than its authority
	}
	if err := addHosts(template, r.Hosts); err != nil {
		return Created{}, err
	}
	files, err := pair(template, ca, key, signer, certName, keyName)
	if err != nil {
		return Created{}, err
	}
	shared := []string{CACert}
	if _, err := os.Stat(filepath.Join(r.CA, RevokedList)); err == nil {
		shared = append(shared, RevokedList)
	}
	if role == Node {
		shared = append(shared, GossipKeys)
	}
	if files, err = r.alongside(files, shared); err != nil {
		return Created{}, err
	}
	return r.write(files, template.NotAfter)
}

// addHosts adds the DNS names and IP addresses of the certificate's holder.
func addHosts(template *x509.Certificate, hosts []string) error {
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		if !isDNSName(h) {
			return fmt.Errorf("%w: invalid host %q: use a DNS name or an IP address, without a port",
				ErrFiles, h)
		}
		template.DNSNames = append(template.DNSNames, h)
	}
	return nil
}

// isDNSName reports whether clients could match the name in a certificate. It accepts underscores,
// which host names must not contain but in practice do.
func isDNSName(name string) bool {
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimPrefix(name, "*."), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range label {
			if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') &&
				(c < 'A' || c > 'Z') {
				return false
			}
		}
	}
	return true
}

// alongside adds the cluster's shared files, unless Dir already contains the same ones.
func (r Request) alongside(files []file, shared []string) ([]file, error) {
	if same(r.CA, r.Dir) {
		return files, nil
	}
	for _, name := range shared {
		data, err := os.ReadFile(filepath.Join(r.CA, name))
		if err != nil {
			return nil, fmt.Errorf("%w: read a shared file of the CA's folder: %w", ErrFiles, err)
		}
		mode := os.FileMode(certMode)
		if name == GossipKeys {
			mode = keyMode
		}
		if there, err := os.ReadFile(filepath.Join(r.Dir, name)); err != nil ||
			string(there) != string(data) {
			files = append(files, file{name, data, mode})
		}
	}
	return files, nil
}

func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// template returns the common fields of a certificate with a new key.
func (r Request) template(name string, id *url.URL) (*ecdsa.PrivateKey, *x509.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("certs: generate a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, fmt.Errorf("certs: generate a serial number: %w", err)
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{
			CommonName: name, Organization: []string{"percolator"},
		},
		NotBefore: r.Now.Add(-backdate), NotAfter: r.Now.Add(r.Lifetime),
	}
	if id != nil {
		t.URIs = append(t.URIs, id)
	}
	return key, t, nil
}

// pair signs the template and encodes certificate and key.
func pair(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey, certName,
	keyName string) ([]file, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, fmt.Errorf("certs: sign the certificate: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("certs: encode the key: %w", err)
	}
	// The key is written first, because a certificate is useless without it.
	return []file{
		{keyName, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), keyMode},
		{certName, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), certMode},
	}, nil
}
