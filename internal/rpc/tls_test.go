package rpc

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// authority signs certificates for a test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir(), pool: x509.NewCertPool()}
	a.cert, a.key = a.issue("ca", nil, nil)
	a.pool.AddCert(a.cert)
	return a
}

// issue writes name.pem and name.key; without a parent it signs itself.
func (a *authority) issue(name string, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: parent == nil, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "EC PRIVATE KEY", private)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// A server that demands certificates serves those that its authority signed, and nobody else.
func TestMutualTLS(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	ours.issue("server", ours.cert, ours.key)
	ours.issue("client", ours.cert, ours.key)
	theirs.issue("client", theirs.cert, theirs.key)
	pair, err := tls.LoadX509KeyPair(ours.file("server.pem"), ours.file("server.key"))
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(txntest.New().Process(1, 1), ServerConfig{TLS: &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.pool,
		MinVersion: tls.VersionTLS13,
	}})
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(lis) })
	defer wg.Wait()
	defer server.Stop()
	good := ClientConfig{CertFile: ours.file("client.pem"), KeyFile: ours.file("client.key"), CAFile: ours.file("ca.pem")}
	c, err := Dial(context.Background(), []string{lis.Addr().String()}, good)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := c.NodeStatus(context.Background()); err != nil || st.ClusterId != "txntest" {
		t.Errorf("%v, %v", st, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for name, cfg := range map[string]ClientConfig{
		"no certificate":      {CAFile: good.CAFile},
		"foreign certificate": {CertFile: theirs.file("client.pem"), KeyFile: theirs.file("client.key"), CAFile: good.CAFile},
		"foreign authority":   {CertFile: good.CertFile, KeyFile: good.KeyFile, CAFile: theirs.file("ca.pem")},
		"clear text":          {Insecure: true},
	} {
		cfg.DialTimeout = 200 * time.Millisecond
		if _, err := Dial(context.Background(), []string{lis.Addr().String()}, cfg); !errors.Is(err, txn.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A server that comes back on its address is found again, and work goes on.
func TestReconnect(t *testing.T) {
	cluster := txntest.New()
	cluster.AddTable("t", "g")
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := lis.Addr().String()
	var wg sync.WaitGroup
	start := func(lis net.Listener) *Server {
		s := NewServer(cluster.Process(1, 1), ServerConfig{})
		wg.Go(func() { _ = s.Serve(lis) })
		return s
	}
	server := start(lis)
	tr, err := Dial(ctx, []string{addr}, ClientConfig{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	c := txn.NewClient(tr, txn.Config{})
	committed := make(chan int, 100)
	working, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		for i := 0; working.Err() == nil; i++ {
			_, err := c.Run(ctx, txn.Options{}, func(_ context.Context, t *txn.Txn) error {
				t.Set(key("a"), []byte{byte(i)})
				t.Set(key("z"), []byte{byte(i)})
				return nil
			})
			if err != nil {
				t.Error(err)
				return
			}
			select {
			case committed <- i:
			case <-working.Done():
			}
		}
	})
	for range 3 {
		<-committed
		server.Stop()
		if lis, err = net.Listen("tcp", addr); err != nil {
			t.Fatal(err)
		}
		server = start(lis)
		for range 100 {
			<-committed
		}
	}
	stop()
	work.Wait()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	server.Stop()
	wg.Wait()
}
