package attack_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

const (
	// each may have 16 streams, with a message of 13 MiB: 1.6 GiB in all
	halfConnections = 8
	halfStreams     = 200        // that each tries to open
	halfMessage     = 13<<20 - 1 // everything except the end is sent
)

// halfSent: hundreds of streams each send as much as the node accepts of a message of 13 MiB, but
// not its end, and reconnect when they are closed; other streams send large writes and read no
// answers.
func halfSent(t *testing.T, c *target) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for range 5 {
		c.served(t)
	}
	before := c.memory(t)
	peak := c.peaks(t)
	var (
		wg         sync.WaitGroup
		cuts, sent atomic.Int64
	)
	attack, end := context.WithCancel(ctx)
	for i := range halfConnections {
		method := pb.Percolator_Operations_FullMethodName
		if i%2 == 0 {
			method = pb.Percolator_CreateTable_FullMethodName
		}
		wg.Go(func() {
			for attack.Err() == nil {
				halves(attack, c.Addrs()[0], method)
				cuts.Add(1)
			}
		})
	}
	write := &pb.TabletRequest{TabletId: 1 << 40,
		Op: &pb.TabletRequest_OnePhase{OnePhase: &pb.OnePhaseRequest{
			Writes: []*pb.CellWrite{
				{Cell: &pb.Cell{
					Table: uint32(tableID(ctx, t, c)), Row: wire.Bytes("a"),
					Column: wire.Bytes("c"),
				}, Value: make([]byte, 1<<20)},
			},
		}}}
	for range 2 {
		client := pb.NewPercolatorClient(dial(t, c.Addrs()[0]))
		for range rudeStreams {
			wg.Go(func() {
				for attack.Err() == nil {
					stream, err := client.Operations(attack, grpc.WaitForReady(true))
					for ; err == nil; sent.Add(1) {
						err = stream.Send(&pb.OperationBatch{
							Operations: []*pb.Operation{{Id: 1, Request: write}},
						})
					}
				}
			})
		}
	}
	for range 10 {
		c.servedByOthers(t)
		c.served(t)
		c.largeWrites(ctx, t)
	}
	end()
	wg.Wait()
	most := peak()
	t.Logf("%d connections have ended, %d writes sent; resident, MiB: before %v, at most %v",
		cuts.Load(), sent.Load(), mib(before), mib(most))
	for i := range most {
		if most[i] > stated {
			t.Errorf("node %d took %d MiB, and may take %d", i, most[i]>>20, stated>>20)
		}
	}
}

// halves sends messages over one connection, one stream after the other, each without its end,
// until it is closed.
func halves(ctx context.Context, addr, method string) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	f := http2.NewFramer(conn, conn)
	may := make(chan int, 1<<16) // number of bytes that the stream may still send
	go func() {                  // ends with the connection
		defer close(may)
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if update, ok := frame.(*http2.WindowUpdateFrame); ok && update.StreamID != 0 {
				may <- int(update.Increment)
			}
		}
	}()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		// so that the same block can be sent again
		_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true})
	}
	if _, err = conn.Write([]byte(http2.ClientPreface)); err == nil {
		err = f.WriteSettings()
	}
	head, body := make([]byte, 16<<10), make([]byte, 16<<10)
	binary.BigEndian.PutUint32(head[1:], halfMessage)
	for id := uint32(1); err == nil && id < 2*halfStreams; id += 2 {
		if err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(),
			EndHeaders: true}); err == nil {
			err = f.WriteData(id, false, head)
		}
		window, sent := 64<<10-len(head), len(head)
		for err == nil && sent < halfMessage-len(body) {
			if window < len(body) {
				n, ok := <-may
				if !ok {
					return
				}
				window += n
				continue
			}
			err = f.WriteData(id, false, body)
			window, sent = window-len(body), sent+len(body)
		}
	}
	for range may { // until the connection ends
	}
}

// largeWrites: clients whose writes need more than one frame are served.
func (c *target) largeWrites(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := c.db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("m", cell, make([]byte, 300<<10))
		return nil
	})
	if err != nil {
		t.Errorf("a large write: %v", err)
	}
}
