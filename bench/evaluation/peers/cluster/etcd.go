package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/ports"
	processes "github.com/percolator-go/percolator/test/cluster"
)

// memberOf names this process's member of a cluster of etcd, in the environment: its number, the
// first port, the folder, and whether it uses the certificates there.
const memberOf = "PERCOLATOR_BENCH_ETCD_MEMBER"

// withEtcd calls do with a cluster of three processes of etcd with its default configuration.
func withEtcd(ctx context.Context, under conditions, do func(context.Context, subject) error) (err error) {
	dir, err := os.MkdirTemp("", "bench-etcd-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	port, err := ports.Run(2 * nodes)
	if err != nil {
		return err
	}
	cfg := clientv3.Config{DialTimeout: 10 * time.Second, Logger: zap.NewNop()}
	if under.tls {
		if cfg.TLS, err = createCerts(dir); err != nil {
			return err
		}
	}
	words := []string{os.Args[0]}
	if under.syncDelay > 0 {
		if words, err = processes.Slowed(words, under.syncDelay); err != nil {
			return err
		}
	}
	var members []*exec.Cmd
	for i := range nodes {
		cfg.Endpoints = append(cfg.Endpoints, etcdURL(port+2*i+1, under.tls).String())
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s %t", memberOf, i, port, dir, under.tls))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		members = append(members, cmd)
		defer func() { //nolint:gocritic // three
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}()
	}
	client, err := clientv3.New(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	started, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	if _, err := client.Put(started, "started", ""); err != nil {
		return err
	}
	return do(ctx, subject{
		operations: map[string]operation{
			put: untilDone(func(ctx context.Context, key string) error {
				_, err := client.Put(ctx, key, string(payload))
				return err
			}),
			get: untilDone(func(ctx context.Context, key string) error {
				_, err := client.Get(ctx, key)
				return err
			}),
			rmw: func(ctx context.Context, key string) error { return ifUnchanged(ctx, client, key) },
			two: func(ctx context.Context, key string) error {
				_, err := client.Txn(ctx).Then(clientv3.OpPut(key, string(payload)),
					clientv3.OpPut(secondTablet+key, string(payload))).Commit()
				return err
			},
		},
		kill: func(ctx context.Context) error { return killLeader(ctx, client, cfg.Endpoints, members) },
	})
}

// untilDone repeats an operation until it succeeds: etcd's client gives up while there is no leader.
func untilDone(do operation) operation {
	return func(ctx context.Context, key string) error {
		for {
			attempt, cancel := context.WithTimeout(ctx, time.Second)
			err := do(attempt, key)
			cancel()
			if err == nil || ctx.Err() != nil {
				return err
			}
		}
	}
}

// killLeader kills the member that leads.
func killLeader(ctx context.Context, client *clientv3.Client, endpoints []string, members []*exec.Cmd) error {
	for i, endpoint := range endpoints {
		s, err := client.Status(ctx, endpoint)
		if err != nil {
			return err
		}
		if s.Leader == s.Header.MemberId {
			return members[i].Process.Kill()
		}
	}
	return errors.New("no member of etcd leads")
}

func ifUnchanged(ctx context.Context, client *clientv3.Client, key string) error {
	got, err := client.Get(ctx, key)
	if err != nil {
		return err
	}
	revision := int64(0) // of a key that does not exist
	if len(got.Kvs) > 0 {
		revision = got.Kvs[0].ModRevision
	}
	put, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpPut(key, string(payload))).Commit()
	if err == nil && !put.Succeeded {
		return fmt.Errorf("key %s was changed by another caller", key)
	}
	return err
}

// createCerts creates an authority and a certificate for all members and the client in dir, and
// returns the client's configuration.
func createCerts(dir string) (*tls.Config, error) {
	if _, err := certs.CreateCA(certs.Request{Dir: dir}); err != nil {
		return nil, err
	}
	host := "127.0.0.1"
	if _, err := certs.CreateNode(certs.Request{Dir: dir, CA: dir, Name: host, Hosts: []string{host}, Force: true}); err != nil {
		return nil, err
	}
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, certs.NodeCert), filepath.Join(dir, certs.NodeKey))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(dir, certs.CACert))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{own}}, nil
}

func etcdURL(port int, encrypted bool) *url.URL {
	u := &url.URL{Scheme: "http", Host: ports.Local(port)}
	if encrypted {
		u.Scheme = "https"
	}
	return u
}

// serve runs a member of a cluster of etcd until SIGTERM.
func serve(member string) error {
	var number, port int
	var dir string
	var encrypted bool
	if _, err := fmt.Sscan(member, &number, &port, &dir, &encrypted); err != nil {
		return err
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.LogLevel = fmt.Sprint("n", number), filepath.Join(dir, fmt.Sprint(number)), "fatal"
	peer, client := etcdURL(port+2*number, encrypted), etcdURL(port+2*number+1, encrypted)
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	if encrypted {
		cfg.ClientTLSInfo.CertFile = filepath.Join(dir, certs.NodeCert)
		cfg.ClientTLSInfo.KeyFile = filepath.Join(dir, certs.NodeKey)
		cfg.ClientTLSInfo.TrustedCAFile = filepath.Join(dir, certs.CACert)
		cfg.ClientTLSInfo.ClientCertAuth = true
		cfg.PeerTLSInfo = cfg.ClientTLSInfo
	}
	cfg.InitialCluster = ""
	for i := range nodes {
		cfg.InitialCluster += fmt.Sprintf("n%d=%s,", i, etcdURL(port+2*i, encrypted))
	}
	cfg.InitialCluster = cfg.InitialCluster[:len(cfg.InitialCluster)-1]
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer server.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	select {
	case <-stop:
		return nil
	case err := <-server.Err():
		return err
	}
}
