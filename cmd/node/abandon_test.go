package main

import (
	"context"
	"fmt"
	"os"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// abandon is a client that dies on purpose during a two-phase commit:
//
// abandon {prewritten|committed} TABLE COLUMN PRIMARY SECONDARY
//
// It leaves both rows' cells locked for an hour, or only the secondary's, after the primary's
// commit, and prints the transaction's start timestamp.
func abandon() {
	if err := leaveLocks(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func leaveLocks(args []string) error {
	if len(args) != 5 {
		return fmt.Errorf("usage: abandon {prewritten|committed} TABLE COLUMN PRIMARY SECONDARY")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	transport, err := rpc.Dial(ctx, []string{os.Getenv("PERCOLATOR_ADDR")},
		rpc.ClientConfig{Insecure: true})
	if err != nil {
		return err
	}
	client := txn.NewClient(transport, txn.Config{})
	defer func() { _ = client.Close() }()
	tables, err := transport.Tables(ctx)
	if err != nil {
		return err
	}
	var table uint32
	for _, t := range tables {
		if t.Name == args[1] {
			table = t.Id
		}
	}
	cell := func(row string) *pb.Cell {
		return &pb.Cell{Table: table, Row: []byte(row), Column: []byte(args[2])}
	}
	start, err := client.Timestamp(ctx)
	if err != nil {
		return err
	}
	send := func(row string, req *pb.TabletRequest) error {
		answer, _, err := client.Send(ctx, wire.Position{Table: mvcc.TableID(table), Row: row}, req)
		if err == nil && answer.GetMutation().GetStatus() != pb.Status_STATUS_OK {
			err = fmt.Errorf("%v", answer)
		}
		return err
	}
	expiry := mvcc.TimestampAt(start.Millis() + time.Hour.Milliseconds())
	for _, row := range args[3:] {
		err := send(row, &pb.TabletRequest{Op: &pb.TabletRequest_Prewrite{Prewrite: &pb.PrewriteRequest{
			StartTs: uint64(start), Primary: cell(args[3]), Expiry: uint64(expiry),
			Worker: wire.WorkerPB(transport.Worker()),
			Writes: []*pb.CellWrite{
				{Cell: cell(row), Kind: pb.Kind_KIND_PUT, Value: []byte("abandoned")},
			},
		}}})
		if err != nil {
			return err
		}
	}
	if args[0] == "committed" {
		commit, err := client.Timestamp(ctx)
		if err != nil {
			return err
		}
		err = send(args[3], &pb.TabletRequest{Op: &pb.TabletRequest_Commit{Commit: &pb.CommitRequest{
			StartTs: uint64(start), CommitTs: uint64(commit), Cells: []*pb.Cell{cell(args[3])},
		}}})
		if err != nil {
			return err
		}
	}
	fmt.Println(uint64(start))
	return nil
}
