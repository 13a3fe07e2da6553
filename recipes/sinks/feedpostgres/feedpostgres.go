// Package feedpostgres copies the cells of tables to a table of PostgreSQL and keeps it up to date,
// applying each change exactly once.
//
// The table has one row for each cell. The changes up to a resolved timestamp and that timestamp, the
// position, are one transaction of PostgreSQL: the table is at all times the state of a snapshot at
// the position, and Copy continues after it. Views give the values the types that queries need;
// triggers on the table can keep tables of other shapes, in the same transaction. One process at a
// time may copy into a table: of two, the one that commits later fails, without an effect.
//
// The names of a cell's table and column are text. A name that PostgreSQL cannot store as text
// (UTF-8 without a zero byte), or that begins with \x, becomes \x and its bytes in hexadecimal
// digits, as PostgreSQL shows a bytea: Name returns it, and no two names are the same text.
// PostgreSQL indexes about 2,700 bytes of a row and its names; a cell with more ends the copy with
// an error.
package feedpostgres

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	percolator "github.com/percolator-go/percolator"
)

// ErrOvertaken reports that another Copy has moved the position of the table.
var ErrOvertaken = errors.New("feedpostgres: another process copies into the table: run only one")

// Config configures Copy. Zero fields mean the defaults.
type Config struct {
	// Table is the name of the table in PostgreSQL, with or without a schema; default
	// {"percolator_cells"}. Copy creates it if it does not exist:
	//
	//	tab text, row_key bytea, col text, value bytea, commit_ts bigint, PRIMARY KEY (tab, row_key, col)
	//
	// Nothing else may write it.
	Table pgx.Identifier
	// Positions is the name of the table of positions, which several tables may share; default
	// {"percolator_positions"}. Copy creates it if it does not exist.
	Positions pgx.Identifier
	// Subscription, if not empty, is the name of a subscription that holds history while Copy does
	// not run. The position in PostgreSQL alone determines where Copy continues.
	Subscription string
	// CommitEvery is the time between two transactions; default 1 s. The initial state is one
	// transaction.
	CommitEvery time.Duration
}

// A batch is sent once it has pipelined statements, or pipelinedBytes of rows and values.
const (
	pipelined      = 1000
	pipelinedBytes = 4 << 20
)

// Copy copies the cells of the rows until ctx ends, and returns ctx's error then. Without a position it
// replaces the contents of the table by all present cells, in one transaction. It returns
// percolator.ErrSnapshotTooOld if the changes after the position are no longer in the history: to begin
// again, delete the table's row of the table of positions. It returns percolator.ErrInvalid if
// PostgreSQL would change a name of the configuration, and percolator.ErrTooLarge for a cell that
// PostgreSQL cannot index. After any error Copy may be called again.
func Copy(ctx context.Context, db *percolator.DB, pool *pgxpool.Pool, cfg Config,
	rows ...percolator.RowRange) error {
	if len(cfg.Table) == 0 {
		cfg.Table = pgx.Identifier{"percolator_cells"}
	}
	if len(cfg.Positions) == 0 {
		cfg.Positions = pgx.Identifier{"percolator_positions"}
	}
	if cfg.CommitEvery <= 0 {
		cfg.CommitEvery = time.Second
	}
	if err := errors.Join(checkIdentifier(cfg.Table), checkIdentifier(cfg.Positions)); err != nil {
		return err
	}
	c := copier{cfg: cfg, pool: pool, table: cfg.Table.Sanitize(), positions: cfg.Positions.Sanitize()}
	if err := c.open(ctx); err != nil {
		return err
	}
	defer c.rollback(context.WithoutCancel(ctx))
	var sub *percolator.Subscription
	if cfg.Subscription != "" {
		var err error
		if sub, err = db.Subscribe(ctx, cfg.Subscription); err != nil {
			return err
		}
	}
	for change, err := range db.Changes(ctx, c.position, rows...) {
		switch {
		case err != nil:
			return err
		case change.Resolved == 0:
			if err := c.apply(ctx, change); err != nil {
				return err
			}
			continue
		case c.position != 0 && time.Since(c.committed) < cfg.CommitEvery:
			continue
		}
		if err := c.commit(ctx, change.Resolved); err != nil {
			return err
		}
		if sub != nil {
			if err := sub.Advance(ctx, change.Resolved); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxIdentifier is the maximum length of a name of PostgreSQL, in bytes. PostgreSQL truncates
// longer ones.
const maxIdentifier = 63

// checkIdentifier returns an error if PostgreSQL would change the name: two tables could be one.
func checkIdentifier(id pgx.Identifier) error {
	if slices.ContainsFunc(id, func(part string) bool { return part == "" || len(part) > maxIdentifier || !isText(part) }) {
		return fmt.Errorf("feedpostgres: each part of %q must have 1 to %d bytes of UTF-8 without a zero byte: %w", id,
			maxIdentifier, percolator.ErrInvalid)
	}
	return nil
}

// isText reports whether PostgreSQL can store the name as text.
func isText(name string) bool { return utf8.ValidString(name) && !strings.ContainsRune(name, 0) }

// escape begins the text of a name that cannot be text itself.
const escape = `\x`

// Name returns the text that is stored for the name of a table or column.
func Name(name string) string {
	if isText(name) && !strings.HasPrefix(name, escape) {
		return name
	}
	return escape + hex.EncodeToString([]byte(name))
}

// indexRowTooLarge is PostgreSQL's code of the error for a key that exceeds its limit.
const indexRowTooLarge = "54000"

// copier copies cells; it holds the transaction of PostgreSQL that is under way.
type copier struct {
	cfg              Config
	pool             *pgxpool.Pool
	table, positions string // quoted

	position  percolator.Timestamp // committed; 0: none
	committed time.Time
	tx        pgx.Tx // nil: no change since the last commit
	batch     pgx.Batch
	bytes     int // bytes of the batch's rows and values
}

// open creates the tables and reads the position.
func (c *copier) open(ctx context.Context) error {
	var position int64
	err := pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		// IF NOT EXISTS does not exclude two creators at the same time.
		_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext($1))`, c.positions)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `CREATE TABLE IF NOT EXISTS `+c.table+` (tab text, row_key bytea, col text,
			value bytea NOT NULL, commit_ts bigint NOT NULL, PRIMARY KEY (tab, row_key, col));
			CREATE TABLE IF NOT EXISTS `+c.positions+` (name text PRIMARY KEY, position bigint NOT NULL)`)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO `+c.positions+` VALUES ($1, 0) ON CONFLICT DO NOTHING`, c.table)
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT position FROM `+c.positions+` WHERE name = $1`, c.table).Scan(&position)
	})
	if err != nil {
		return fmt.Errorf("feedpostgres: create the tables or read the position: %w", err)
	}
	c.position = percolator.Timestamp(position)
	return nil
}

// apply adds a change to the transaction.
func (c *copier) apply(ctx context.Context, change percolator.Change) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	if change.Deleted {
		c.batch.Queue(`DELETE FROM `+c.table+` WHERE tab = $1 AND row_key = $2 AND col = $3`,
			Name(change.Column.Table), []byte(change.Row), Name(change.Column.Name))
	} else {
		value := change.Value
		if value == nil {
			value = []byte{}
		}
		c.batch.Queue(`INSERT INTO `+c.table+` VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (tab, row_key, col) DO UPDATE SET value = excluded.value, commit_ts = excluded.commit_ts`,
			Name(change.Column.Table), []byte(change.Row), Name(change.Column.Name), value, int64(change.CommitTS))
	}
	c.bytes += len(change.Row) + len(change.Value)
	if c.batch.Len() < pipelined && c.bytes < pipelinedBytes {
		return nil
	}
	return c.flush(ctx)
}

// begin begins a transaction, unless one is open. The first one empties the table.
func (c *copier) begin(ctx context.Context) (err error) {
	if c.tx != nil {
		return nil
	}
	if c.tx, err = c.pool.Begin(ctx); err != nil {
		return fmt.Errorf("feedpostgres: begin: %w", err)
	}
	if c.position == 0 {
		c.batch.Queue(`DELETE FROM ` + c.table)
	}
	return nil
}

// flush sends the batch, and waits until PostgreSQL has executed it.
func (c *copier) flush(ctx context.Context) error {
	err := c.tx.SendBatch(ctx, &c.batch).Close()
	c.batch, c.bytes = pgx.Batch{}, 0
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && refusal.Code == indexRowTooLarge {
		return fmt.Errorf("feedpostgres: %w: a cell's table, row and column, which are the primary key: %w", percolator.ErrTooLarge, err)
	}
	if err != nil {
		return fmt.Errorf("feedpostgres: apply changes: %w", err)
	}
	return nil
}

// commit commits the transaction together with the new position.
func (c *copier) commit(ctx context.Context, resolved percolator.Timestamp) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	if err := c.flush(ctx); err != nil {
		return err
	}
	moved, err := c.tx.Exec(ctx, `UPDATE `+c.positions+` SET position = $3 WHERE name = $1 AND position = $2`,
		c.table, int64(c.position), int64(resolved))
	if err != nil {
		return fmt.Errorf("feedpostgres: store the position: %w", err)
	}
	if moved.RowsAffected() == 0 {
		return ErrOvertaken
	}
	if err := c.tx.Commit(ctx); err != nil {
		// The transaction may have committed: the next Copy reads the position.
		return fmt.Errorf("feedpostgres: commit: %w", err)
	}
	c.tx, c.position, c.committed = nil, resolved, time.Now()
	return nil
}

// rollback ends a transaction that was not committed.
func (c *copier) rollback(ctx context.Context) {
	if c.tx == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// If it fails, the connection is closed, which rolls back too.
	_ = c.tx.Rollback(ctx)
}
