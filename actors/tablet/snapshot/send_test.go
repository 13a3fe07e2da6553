package snapshot

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/group"
	"github.com/percolator-go/percolator/internal/wire"
)

// sendLast sends a snapshot's last piece. Each call of answer receives the number of requests so far
// and the function that answers this one.
func sendLast(answer func(n int, reply func(installed bool, err error))) (installed bool,
	took time.Duration, err error) {
	n, began := 0, time.Now()
	sender := NewSender(nil, func(_ uint64, _ time.Time, _ *wire.SnapshotChunk,
		then func(*wire.SnapshotAnswer, error)) {
		n++
		answer(n, func(installed bool, err error) {
			then(&wire.SnapshotAnswer{Installed: installed}, err)
		})
	}, 0, 0)
	defer sender.Close()
	out := &outgoing{
		job: &job{Snapshot: group.Snapshot{Node: hereNode}, tablet: sentTablet}, sender: sender,
	}
	installed, err = out.piece(&wire.SnapshotChunk{TabletId: sentTablet, Sequence: 3, Last: true})
	return installed, time.Since(began), err
}

// TestLastPieceIsRepeated checks that a lost last piece is sent again while the receiver still has
// the earlier ones, which it drops after a minute of silence. Catches BROKEN=last_piece_unrepeated.
func TestLastPieceIsRepeated(t *testing.T) {
	const receiverKeeps = time.Minute // package replicas: arrivalIdle
	for _, failures := range []int{0, 1} {
		t.Run(fmt.Sprint(failures), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				installed, took, err := sendLast(func(n int, reply func(bool, error)) {
					switch n {
					case 1 + failures: // lost
					case 2 + failures:
						reply(true, nil)
					default: // its connection ends
						time.AfterFunc(5*time.Second, func() { reply(false, errCrash) })
					}
				})
				if err != nil || !installed || took >= receiverKeeps {
					t.Errorf("LAST-PIECE: after one loss: installed %v after %v: %v", installed,
						took, err)
				}
			})
		})
	}
}

// TestLongInstallation checks that the sender waits for an installation that takes minutes, and
// repeats the last piece no more often than the receiver answers it.
func TestLongInstallation(t *testing.T) {
	const (
		receiverAnswers = 4 // package replicas: maxReplies
		duration        = 8 * time.Minute
	)
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		began := time.Now()
		installed, took, err := sendLast(func(n int, reply func(bool, error)) {
			requests = n
			time.AfterFunc(time.Until(began.Add(duration)), func() { reply(true, nil) })
		})
		if err != nil || !installed || took != duration || requests > receiverAnswers {
			t.Errorf("installed %v after %v and %d requests: %v", installed, took, requests, err)
		}
	})
}
