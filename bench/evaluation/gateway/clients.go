package gateway

import (
	"context"
	"errors"
	"strconv"

	"connectrpc.com/connect"

	percolator "github.com/percolator-go/percolator"
	gw "github.com/percolator-go/percolator/api/gateway/v1"
)

// ofDB returns the operations of the native client.
func ofDB(db *percolator.DB) client {
	get := func(ctx context.Context, tx *percolator.Tx, row string) (string, error) {
		value, _, err := tx.Get(ctx, row, cell)
		return string(value), err
	}
	return client{
		name: native,
		write: func(ctx context.Context, row, value string) error {
			return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
				tx.Set(row, cell, []byte(value))
				return nil
			})
		},
		read: func(ctx context.Context, row string) (value string, err error) {
			err = db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
				value, err = get(ctx, tx, row)
				return err
			})
			return value, err
		},
		increment: func(ctx context.Context, row string) error {
			return db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
				value, err := get(ctx, tx, row)
				if err != nil {
					return err
				}
				next, err := plusOne(value)
				tx.Set(row, cell, []byte(next))
				return err
			})
		},
	}
}

// ofGateway returns the operations of a client of the gateway.
func ofGateway(name string, c gw.GatewayClient) client {
	read := func(ctx context.Context, req *gw.ReadRequest, row string) (string, error) {
		req.Keys = []*gw.Key{{
			Table: cell.Table, RowAs: &gw.Key_Row{Row: row}, ColumnAs: &gw.Key_Column{Column: cell.Name},
		}}
		resp, err := c.Read(ctx, connect.NewRequest(req))
		if err != nil {
			return "", err
		}
		return resp.Msg.Cells[0].GetValue(), nil
	}
	set := func(row, value string) []*gw.CellWrite {
		return []*gw.CellWrite{{
			Table: cell.Table, RowAs: &gw.CellWrite_Row{Row: row}, ColumnAs: &gw.CellWrite_Column{Column: cell.Name},
			ValueAs: &gw.CellWrite_Value{Value: value},
		}}
	}
	return client{
		name: name,
		write: func(ctx context.Context, row, value string) error {
			_, err := c.Transact(ctx, connect.NewRequest(&gw.TransactRequest{Writes: set(row, value)}))
			return err
		},
		read: func(ctx context.Context, row string) (string, error) { return read(ctx, &gw.ReadRequest{}, row) },
		increment: func(ctx context.Context, row string) error {
			begun, err := c.Begin(ctx, connect.NewRequest(&gw.BeginRequest{}))
			if err != nil {
				return err
			}
			session := begun.Msg.Session
			value, err := read(ctx, &gw.ReadRequest{Snapshot: &gw.ReadRequest_Session{Session: session}}, row)
			if err != nil {
				return err
			}
			next, err := plusOne(value)
			if err != nil {
				return err
			}
			_, err = c.Write(ctx, connect.NewRequest(&gw.WriteRequest{Session: session, Writes: set(row, next)}))
			if err != nil {
				return err
			}
			_, err = c.Commit(ctx, connect.NewRequest(&gw.CommitRequest{Session: session}))
			return err
		},
	}
}

func plusOne(value string) (string, error) {
	n, err := strconv.Atoi(value)
	if err != nil {
		return "", errors.New("the cell has no number: " + value)
	}
	return strconv.Itoa(n + 1), nil
}
