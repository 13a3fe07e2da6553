package peers

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/percolator-go/percolator/internal/ports"
)

// inEtcd is an etcd of one member in this process, with its default configuration (every
// commit is synced); the client calls the server's functions directly.
type inEtcd struct {
	server *embed.Etcd
	client *clientv3.Client
	get    []clientv3.OpOption
}

func openEtcd(ctx context.Context, dir string, serializable bool) (subject, error) {
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel = dir, "fatal" // it reports its own listeners' ends as errors
	port, err := ports.Run(2)
	if err != nil {
		return nil, err
	}
	peer, client := url.URL{Scheme: "http", Host: ports.Local(port)},
		url.URL{Scheme: "http", Host: ports.Local(port + 1)}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, err
	}
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		return nil, err
	case <-ctx.Done():
		server.Close()
		return nil, ctx.Err()
	}
	s := &inEtcd{server: server, client: v3client.New(server.Server)}
	if serializable {
		s.get = append(s.get, clientv3.WithSerializable())
	}
	return s, nil
}

var errChanged = errors.New("a key was changed by another caller than its own")

func (s *inEtcd) transact(ctx context.Context, key string) error {
	got, err := s.client.Get(ctx, key, s.get...)
	if err != nil {
		return err
	}
	revision := int64(0) // of a key that does not exist
	if len(got.Kvs) > 0 {
		revision = got.Kvs[0].ModRevision
	}
	put, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpPut(key, string(payload))).Commit()
	if err != nil {
		return err
	}
	if !put.Succeeded {
		return fmt.Errorf("%w: %s", errChanged, key)
	}
	return nil
}

func (s *inEtcd) close(context.Context) error {
	err := s.client.Close()
	s.server.Close()
	if errors.Is(err, context.Canceled) { // its own context, which Close has ended
		return nil
	}
	return err
}
