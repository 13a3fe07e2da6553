package cluster

import (
	"net"
	"path/filepath"

	"github.com/percolator-go/percolator/internal/certs"
)

// makeCerts creates an authority, a certificate for each host in a separate folder (on loopback,
// one for all nodes), and one for clients.
func (c *Cluster) makeCerts() error {
	ca := filepath.Join(c.cfg.Dir, "ca")
	if _, err := certs.CreateCA(certs.Request{Dir: ca}); err != nil {
		return err
	}
	if _, err := certs.CreateClient(certs.Request{Dir: ca, Name: "test",
		Role: certs.Operator}); err != nil {
		return err
	}
	for _, p := range c.nodes {
		host, _, err := net.SplitHostPort(p.Listen)
		if err != nil {
			return err
		}
		p.certs = filepath.Join(c.cfg.Dir, "certs-"+host)
		if c.hosts == nil {
			p.certs = filepath.Join(c.cfg.Dir, "certs") // one host, one certificate
		}
		if _, err := certs.CreateNode(certs.Request{Dir: p.certs, CA: ca, Name: host,
			Hosts: []string{host}, Force: true}); err != nil {
			return err
		}
	}
	c.clientCerts = ca
	return nil
}

// ClientCerts returns the folder with the clients' certificates, or "" without TLS.
func (c *Cluster) ClientCerts() string { return c.clientCerts }
