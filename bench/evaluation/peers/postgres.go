package peers

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	scratch "github.com/percolator-go/percolator/bench/evaluation/postgres"
)

// postgres is a server of its own, with the default settings: every commit is synced.
type postgres struct {
	server *scratch.Server
	pool   *pgxpool.Pool
}

// startPostgres starts a server with these settings in the directory, and makes the schema.
func startPostgres(ctx context.Context, dir, schema string, settings ...string) (*postgres, error) {
	s, err := scratch.Start(ctx, dir, schema, settings...)
	if err != nil {
		return nil, err
	}
	return &postgres{server: s, pool: s.Pool}, nil
}

func (s *postgres) close(context.Context) error { return s.server.Close() }

// cpu returns the processor time of the server's processes.
func (s *postgres) cpu() time.Duration { return s.server.CPU() }
