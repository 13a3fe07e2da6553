package txn

import (
	"context"
	"iter"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

type Reader interface {
	Get(ctx context.Context, k Key) ([]byte, bool, error)
	GetMulti(ctx context.Context, keys []Key) ([]Value, error)
	Scan(ctx context.Context, s ScanSpec) iter.Seq2[mvcc.ReadCell, error]
}
type reader struct{}

func (*reader) Get(ctx context.Context, k Key) ([]byte, bool, error)      { panic("") }
func (*reader) GetMulti(ctx context.Context, keys []Key) ([]Value, error) { panic("") }
func (*reader) Scan(ctx context.Context, s ScanSpec) iter.Seq2[mvcc.ReadCell, error] {
	panic("")
}
func (*reader) GetRecords(ctx context.Context, cells ...mvcc.Cell) ([]mvcc.ReadResult, error) {
	panic("")
}

type Txn struct{ reader }

func (*Txn) Set(k Key, v []byte)                           {}
func (*Txn) SetCell(c mvcc.Cell, v []byte)                 {}
func (*Txn) Delete(k Key)                                  {}
func (*Txn) Notify(k Key)                                  {}
func (*Txn) StartTS() Timestamp                            { panic("") }
func (*Txn) Commit(ctx context.Context) (Timestamp, error) { panic("") }
func (*Txn) Rollback(ctx context.Context) error            { panic("") }

type Snapshot struct{ reader }

func (*Snapshot) Timestamp() Timestamp { panic("") }
func (*Snapshot) Close() error         { panic("") }

type Client struct{}
type Stats struct{}

func NewClient(t Transport, cfg Config) *Client { panic("") }
func (c *Client) CreateTable(ctx context.Context, name string, splitKeys []string) error {
	panic("")
}
func (c *Client) DropTable(ctx context.Context, name string) error   { panic("") }
func (c *Client) Tables(ctx context.Context) ([]*pb.Table, error)    { panic("") }
func (c *Client) Begin(ctx context.Context, o Options) (*Txn, error) { panic("") }
func (c *Client) Run(ctx context.Context, o Options, fn func(context.Context, *Txn) error) (Timestamp, error) {
	panic("")
}
func (c *Client) Snapshot(ctx context.Context) (*Snapshot, error)                 { panic("") }
func (c *Client) SnapshotAt(ctx context.Context, ts Timestamp) (*Snapshot, error) { panic("") }
func (c *Client) WaitIdle(ctx context.Context) error                              { panic("") }
func (c *Client) Stats() Stats                                                    { panic("") }
func (c *Client) Flush()                                                          {}
func (c *Client) Close() error                                                    { panic("") }
func (c *Client) Timestamp(ctx context.Context) (Timestamp, error)                { panic("") }
func (c *Client) ResolveLock(ctx context.Context, l mvcc.LockInfo) (bool, error)  { panic("") }
func (c *Client) Send(ctx context.Context, table mvcc.TableID, row string, req *pb.TabletRequest) (*pb.TabletResponse, error) {
	panic("")
}
