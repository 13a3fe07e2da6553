package archiver

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
)

// This file has the actor and its configuration. The actor works in turns (turn.go), which never
// overlap; a turn lasts as long as the backups that it makes.

// DefaultPause is the default of Config.Pause.
const DefaultPause = 10 * time.Second

// Schedules reads and changes the records in meta. *meta.Schedules implements it.
type Schedules interface {
	List(ctx context.Context) ([]*pb.BackupSchedule, error)
	// Note changes one record by fn, which may be called several times.
	Note(ctx context.Context, name string, fn func(*pb.BackupSchedule)) error
}

// Made describes a completed backup.
type Made struct {
	Name string
	At   time.Time // the time of the backup's timestamp
	Full bool
	// PruneErr is the error of removing old backups afterwards; nil means they were removed.
	PruneErr error
}

// Config configures a Job. Schedules and Make are required; other zero fields take their defaults.
type Config struct {
	Schedules Schedules
	// Make creates a backup, or resumes an interrupted one, and then removes backups beyond the
	// retention. If no increment is possible it creates a full backup.
	Make func(ctx context.Context, s *pb.BackupSchedule, incremental bool) (Made, error)
	// Pause is the time after a turn, which reads the schedules and makes the backups that are due.
	// Defaults to DefaultPause.
	Pause  time.Duration
	Now    func() time.Time // defaults to time.Now
	Logger *slog.Logger
}

// ErrInvalid reports a configuration that lacks a required field.
var ErrInvalid = errors.New("archiver: Schedules and Make are required")

// Job is the running actor. Its methods may be called concurrently.
type Job struct {
	*actorkit.Turns
	work *work
}

// Spawn starts the actor. It fails with ErrInvalid, or if its name is taken.
func Spawn(system *actor.ActorSystem, cfg Config) (*Job, error) {
	if cfg.Schedules == nil || cfg.Make == nil {
		return nil, ErrInvalid
	}
	if cfg.Pause <= 0 {
		cfg.Pause = DefaultPause
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	w := &work{cfg: cfg}
	turns, err := actorkit.SpawnTurns(system, actorkit.TurnsConfig{Name: "archiver", Turn: w.turn})
	if err != nil {
		return nil, err
	}
	return &Job{turns, w}, nil
}

// Last returns the schedules as last read from meta, nil before that; the caller must not change
// them.
func (j *Job) Last() []*pb.BackupSchedule {
	j.work.mu.Lock()
	defer j.work.mu.Unlock()
	return j.work.last
}

// work is the actor's state.
type work struct {
	cfg Config

	mu   sync.Mutex
	last []*pb.BackupSchedule
}
