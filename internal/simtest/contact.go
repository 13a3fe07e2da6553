package simtest

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/join"
)

// contacts maps listen addresses to the nodes' Membership services.
type contacts struct {
	network *network

	mu  sync.Mutex
	all map[string]pb.MembershipServer
}

func newDoors(network *network) *contacts {
	return &contacts{network: network, all: map[string]pb.MembershipServer{}}
}

// contact implements join.Contact for one node over the simulated network.
type contact struct {
	contacts *contacts
	index    int
}

var _ join.Contact = contact{}

// open registers a node's Membership service, in place of an earlier incarnation's.
func (d *contacts) open(index int, listen string, membership pb.MembershipServer) join.Contact {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all[listen] = membership
	return contact{d, index}
}

// call calls the service at the address, if the network lets it through.
func call[Q, A proto.Message](ctx context.Context, c contact, addr string, req Q,
	ask func(pb.MembershipServer, context.Context, Q) (A, error)) (A, error) {
	var none A
	c.contacts.mu.Lock()
	membership := c.contacts.all[addr]
	c.contacts.mu.Unlock()
	if membership == nil || c.contacts.network.silent(c.index, indexOf(addr)) > 0 || ctx.Err() != nil {
		return none, fmt.Errorf("simtest: node %d cannot reach %s", c.index, addr)
	}
	a, err := ask(membership, ctx, proto.CloneOf(req))
	if err != nil {
		return none, err
	}
	return proto.CloneOf(a), nil
}

// Hello implements join.Contact.
func (c contact) Hello(ctx context.Context, addr string,
	req *pb.HelloRequest) (*pb.HelloResponse, error) {
	return call(ctx, c, addr, req, pb.MembershipServer.Hello)
}

// Join implements join.Contact.
func (c contact) Join(ctx context.Context, addr string,
	req *pb.JoinRequest) (*pb.JoinResponse, error) {
	return call(ctx, c, addr, req, pb.MembershipServer.Join)
}

// Found implements join.Contact.
func (c contact) Found(ctx context.Context, addr string,
	req *pb.FoundRequest) (*pb.FoundResponse, error) {
	return call(ctx, c, addr, req, pb.MembershipServer.Found)
}
