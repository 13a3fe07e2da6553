package archiver

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// world holds the records in meta and a log of the backups made. Only the actor calls its methods.
type world struct {
	schedules []*pb.BackupSchedule
	fail      error
	block     bool // blocks until the context ends
	made      []string
	began     time.Time
}

func (w *world) List(context.Context) ([]*pb.BackupSchedule, error) {
	var out []*pb.BackupSchedule
	for _, s := range w.schedules {
		out = append(out, proto.CloneOf(s))
	}
	return out, nil
}

func (w *world) Note(_ context.Context, name string, fn func(*pb.BackupSchedule)) error {
	for _, s := range w.schedules {
		if s.Name == name {
			fn(s)
		}
	}
	return nil
}

func (w *world) make(ctx context.Context, s *pb.BackupSchedule, incremental bool) (Made, error) {
	kind := "full"
	if incremental {
		kind = "incremental"
	}
	w.made = append(w.made, time.Since(w.began).Round(time.Minute).String()+" "+s.Name+" "+kind)
	if w.block {
		<-ctx.Done()
		return Made{}, ctx.Err()
	}
	return Made{Name: "b", At: time.Now(), Full: !incremental}, w.fail
}

// run executes the actor's turns for d of virtual time.
func (w *world) run(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	turns := &work{cfg: Config{
		Schedules: w, Make: w.make, Pause: DefaultPause, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	}}
	for ctx.Err() == nil {
		select {
		case <-time.After(turns.turn(ctx)):
		case <-ctx.Done():
		}
	}
}

func schedule(name string, first time.Time, every, full time.Duration) *pb.BackupSchedule {
	return &pb.BackupSchedule{
		Name: name, FirstUnixMs: first.UnixMilli(), EveryMs: every.Milliseconds(), FullEveryMs: full.Milliseconds(),
	}
}

func (w *world) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(w.made, want) {
		t.Errorf("made %q, want %q", w.made, want)
	}
	w.made = nil
}

func TestByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{began: time.Now()}
		w.schedules = []*pb.BackupSchedule{
			schedule("hourly", w.began.Add(30*time.Minute), time.Hour, 3*time.Hour),
			schedule("later", w.began.Add(5*time.Hour), time.Hour, 0),
		}
		w.run(t, 5*time.Hour-time.Minute)
		w.expect(t, "30m0s hourly full", "1h30m0s hourly incremental", "2h30m0s hourly incremental",
			"3h30m0s hourly full", "4h30m0s hourly incremental")
		// Meta has no leader for hours: one backup at once makes up for the missed ones.
		<-time.After(4*time.Hour + 10*time.Minute)
		w.run(t, 10*time.Minute)
		w.expect(t, "9h9m0s hourly full", "9h9m0s later full")
		w.schedules[1].Run = true
		w.run(t, time.Minute)
		w.expect(t, "9h19m0s later full")
		if s := w.schedules[0]; s.Backup != "b" || s.SuccessUnixMs == 0 || s.FullUnixMs != s.SuccessUnixMs {
			t.Errorf("noted %v", s)
		}
	})
}

// TestFailureIsRetried: a failed backup is retried after some minutes and does not delay another
// schedule's.
func TestFailureIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{began: time.Now(), fail: errors.New("no room")}
		w.schedules = []*pb.BackupSchedule{
			schedule("a", w.began, 24*time.Hour, 0), schedule("b", w.began, 2*time.Minute, 0),
		}
		w.run(t, 6*time.Minute-time.Second)
		w.expect(t, "0s a full", "0s b full", "2m0s b full", "4m0s b full", "5m0s a full")
		if s := w.schedules[0]; s.Error != "no room" || s.SuccessUnixMs != 0 {
			t.Errorf("noted %v", s)
		}
	})
}

// TestRequestedBackupIsRetried: a requested backup that fails before the schedule's first time is
// retried too.
func TestRequestedBackupIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{began: time.Now(), fail: errors.New("no room")}
		w.schedules = []*pb.BackupSchedule{schedule("a", w.began.Add(24*time.Hour), time.Hour, 0)}
		w.schedules[0].Run = true
		w.run(t, 5*time.Minute-time.Second)
		w.expect(t, "0s a full")
		w.fail = nil
		w.run(t, time.Hour)
		w.expect(t, "5m0s a full")
	})
}

// TestInterruptedBackupStaysDue: a backup interrupted by the loss of meta's leadership is not
// recorded, so the next leader makes it.
func TestInterruptedBackupStaysDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{began: time.Now(), block: true}
		w.schedules = []*pb.BackupSchedule{schedule("a", w.began, time.Hour, 0)}
		w.run(t, time.Minute)
		if s := w.schedules[0]; s.TriedUnixMs != 0 || s.Error != "" {
			t.Errorf("INTERRUPTED: noted %v", s)
		}
		w.block = false
		w.run(t, time.Minute)
		w.expect(t, "0s a full", "1m0s a full")
	})
}
