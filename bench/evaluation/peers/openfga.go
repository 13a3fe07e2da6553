package peers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	openfgav1 "github.com/openfga/api/proto/openfga/v1"
	"github.com/openfga/language/pkg/go/transformer"
	"github.com/openfga/openfga/pkg/server"
	"github.com/openfga/openfga/pkg/storage"
	"github.com/openfga/openfga/pkg/storage/memory"
	"github.com/openfga/openfga/pkg/storage/migrate"
	fgapostgres "github.com/openfga/openfga/pkg/storage/postgres"
	"github.com/openfga/openfga/pkg/storage/sqlcommon"
)

// accessModel is the model of makeAccess: users in nested teams, which see nested folders and the
// documents in them.
const accessModel = `model
  schema 1.1

type user

type team
  relations
    define member: [user, team#member]

type folder
  relations
    define parent: [folder]
    define viewer: [team#member] or viewer from parent

type document
  relations
    define parent: [folder]
    define viewer: viewer from parent
`

// fgaNode returns the type of a node of makeAccess and its object in OpenFGA.
func fgaNode(node string) (kind, object string) {
	kind = strings.TrimRight(node, "0123456789")
	return kind, kind + ":" + node
}

// fgaTuple returns an edge as a tuple.
func fgaTuple(from, to string) *openfgav1.TupleKey {
	kind, subject := fgaNode(from)
	toKind, object := fgaNode(to)
	t := &openfgav1.TupleKey{Object: object, Relation: "parent", User: subject}
	switch {
	case toKind == "team":
		t.Relation = "member"
	case kind == "team":
		t.Relation = "viewer"
	}
	if kind == "team" {
		t.User += "#member"
	}
	return t
}

// fga is an OpenFGA in this process.
type fga struct {
	server       *server.Server
	store, model string
	database     *postgres // nil with the memory store
}

func openFGAInMemory(ctx context.Context, _ string, a access) (checker, error) {
	return openFGA(ctx, memory.New(), nil, a)
}

func openFGAInPostgres(ctx context.Context, dir string, a access) (checker, error) {
	s, err := startPostgres(ctx, dir, "")
	if err != nil {
		return nil, err
	}
	uri := "postgres://bench@/postgres?host=" + url.QueryEscape(dir)
	if err := migrate.RunMigrations(migrate.MigrationConfig{Engine: "postgres", URI: uri, Timeout: time.Minute, PingTimeout: 10 * time.Second}); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	store, err := fgapostgres.New(uri, sqlcommon.NewConfig())
	if err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return openFGA(ctx, store, s, a)
}

func openFGA(ctx context.Context, datastore storage.OpenFGADatastore, database *postgres, a access) (_ checker, err error) {
	s := &fga{database: database}
	if s.server, err = server.NewServerWithOpts(server.WithDatastore(datastore)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(ctx))
		}
	}()
	store, err := s.server.CreateStore(ctx, &openfgav1.CreateStoreRequest{Name: "access"})
	if err != nil {
		return nil, err
	}
	s.store = store.GetId()
	parsed, err := transformer.TransformDSLToProto(accessModel)
	if err != nil {
		return nil, err
	}
	model, err := s.server.WriteAuthorizationModel(ctx, &openfgav1.WriteAuthorizationModelRequest{
		StoreId: s.store, SchemaVersion: parsed.GetSchemaVersion(), TypeDefinitions: parsed.GetTypeDefinitions(),
	})
	if err != nil {
		return nil, err
	}
	s.model = model.GetAuthorizationModelId()
	const most = 100 // tuples of one write
	for first := 0; first < len(a.edges); first += most {
		var tuples []*openfgav1.TupleKey
		for _, e := range a.edges[first:min(first+most, len(a.edges))] {
			tuples = append(tuples, fgaTuple(e[0], e[1]))
		}
		if _, err := s.server.Write(ctx, &openfgav1.WriteRequest{
			StoreId: s.store, AuthorizationModelId: s.model, Writes: &openfgav1.WriteRequestWrites{TupleKeys: tuples},
		}); err != nil {
			return nil, fmt.Errorf("tuples from %d on: %w", first, err)
		}
	}
	return s, nil
}

func (s *fga) check(ctx context.Context, user, document string) (bool, error) {
	_, subject := fgaNode(user)
	_, object := fgaNode(document)
	r, err := s.server.Check(ctx, &openfgav1.CheckRequest{
		StoreId: s.store, AuthorizationModelId: s.model,
		TupleKey: &openfgav1.CheckRequestTupleKey{User: subject, Relation: "viewer", Object: object},
	})
	return r.GetAllowed(), err
}

func (s *fga) close(ctx context.Context) error {
	s.server.Close() // and the store
	if s.database == nil {
		return nil
	}
	return s.database.close(ctx)
}
